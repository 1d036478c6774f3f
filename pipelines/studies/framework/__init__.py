"""What studies share: runs and settings as results, tables, figures with captions."""
