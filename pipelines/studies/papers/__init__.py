"""The studies: one file each, or a folder if a study needs its own measurements."""
