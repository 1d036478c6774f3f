"""TF Serving: its messages, its configuration, and a backend that predicts through a TF Serving server."""
