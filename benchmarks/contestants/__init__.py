"""One program a contestant, each written as its users would write it, run by `benchmarks.controller` in a process."""
