"""Predictions with exported models: of a few image files, or of any number into a Parquet file."""
