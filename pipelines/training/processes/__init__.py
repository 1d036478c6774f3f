"""Processes that a command starts on this machine: each has a task, restarts when it dies, and ends with its parent."""
