"""What belongs to a TF Serving server: its messages and its configuration."""
