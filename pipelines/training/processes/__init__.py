"""Processes that a command starts locally: each has a task, is restarted when it dies, and ends with its parent."""
