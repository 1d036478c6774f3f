"""Data sets: preparation, preprocessing, augmentation and batches."""
