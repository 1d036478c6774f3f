"""The user's own data: read in the usual formats, checked, split, and prepared as a TFDS data set."""
