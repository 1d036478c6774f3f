"""Contestants: programs written the way their users would write them, run by `benchmarks.controller`."""
