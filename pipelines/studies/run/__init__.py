"""Runs studies in processes that may be killed at any moment, and writes their pages."""
