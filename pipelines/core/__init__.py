"""Base of every part: configuration, run directory, files, errors, parsing. Imports no other part."""
