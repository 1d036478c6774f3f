"""Processes that a verb starts on this machine: each has a task, is started again when it dies, and ends with it."""
