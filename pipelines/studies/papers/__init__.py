"""The studies: one file each, or a folder if a study needs measurements of its own."""
