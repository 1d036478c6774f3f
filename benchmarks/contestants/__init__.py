"""The contestants, each a program as its users would write it, run by `benchmarks.controller` in a process."""
