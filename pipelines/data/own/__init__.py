"""Data of the user's own: read in the usual formats, checked, split, and prepared as a data set of TFDS."""
