"""Processes that a verb starts on this machine: started again when they die, ended with it, and told apart by a task."""
