"""Foundation of all other packages: configuration, run directory, files, errors, parsing. Imports none of them."""
