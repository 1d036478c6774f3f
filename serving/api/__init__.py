"""The routes of the endpoint: one file a protocol."""
