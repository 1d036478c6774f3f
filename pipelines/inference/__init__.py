"""Predictions with exported models: for a few image files, or for any number of images into a Parquet file."""
