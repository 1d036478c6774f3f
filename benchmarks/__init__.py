"""This project and its peers side by side on the same data and machine: `make bench`, or `python -m benchmarks`.

- Each contestant is a program of its own under `contestants`, written as its users would write it, in a process of its
  own. All contestants of one size are alive together and take turns, in reversed order every other round; those that
  wait are blocked on their input. Only the controller measures time, until a contestant has reported its losses.
- All start from the same weights and see the same batches, and their losses are compared (`agreement`). A contestant
  that learns something else fails the run.
- Ratios are taken within rounds, to the fastest peer; then median, lowest and highest are reported (`table`).
- First step and whole study count from the start of a fresh process, including the import of its framework.
- The roof of the machine is measured in the same run (`roof`).
- Contestants that cannot take part are skipped by name.

A new benchmark is a file with a `Benchmark`, and a row in `BENCHMARKS` of `__main__.py`.
"""
