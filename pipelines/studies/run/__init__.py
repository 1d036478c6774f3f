"""Runs studies, by processes that may be killed at any moment, and makes a page of each."""
