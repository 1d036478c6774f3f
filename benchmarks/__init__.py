"""Compares this project with its peers on the same data and machine: `make bench`, or `python -m benchmarks`.

- Each contestant is a separate program in `contestants`, written the way its users would write it, and runs in its own
  process. The processes of all contestants of a size stay alive and take turns, in reverse order every other round;
  those that wait block on their input. Only the controller measures time, until a contestant has reported its losses.
- All contestants start from the same weights and see the same batches, and their losses are compared (`agreement`). One
  whose losses diverge from the others' fails the run.
- Ratios to the fastest peer are computed within each round, and reported as median, minimum and maximum (`table`).
- The first step and the whole study are timed from the start of a fresh process, including the framework's import.
- The machine's roof, its peak rates, is measured in the same run (`roof`).
- Contestants that cannot take part are skipped by name.

A new benchmark is a file with a `Benchmark`, and a row in `BENCHMARKS` of `__main__.py`.
"""
