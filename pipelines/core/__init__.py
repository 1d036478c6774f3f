"""What every part stands on: configuration, run directory, files, errors, parsing. Imports no other part."""
