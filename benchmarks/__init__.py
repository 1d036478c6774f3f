"""Ours and the peers side by side on the same data and machine: `make bench`, which is `python -m benchmarks`.

- Every contestant is a program of its own under `contestants`, written as its users would write it, in a process of
  its own. All of one size are alive together and take turns; the order is reversed each round; who is not asked waits
  blocked on its input. The controller has the only clock, and stops it when the losses are told.
- All start from the same weights and see the same batches, and their losses are compared (`agreement`). Whoever learns
  something else makes the run fail.
- Ratios are taken within rounds, to the fastest peer, then their median, lowest and highest (`table`).
- First step and whole study are counted from the start of a fresh process, with the import of its framework.
- The roof of the machine is measured in the same run (`roof`).
- Who cannot take part is skipped by name.
"""
