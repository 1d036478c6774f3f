"""The studies: a file each, or a folder where a study measures something of its own."""
