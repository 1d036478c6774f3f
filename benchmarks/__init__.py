"""Ours and the peers side by side on the same data and machine: `make bench`, which is `python -m benchmarks`."""
