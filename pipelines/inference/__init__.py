"""Predictions of very many pictures, streamed from disk into a Parquet file."""
