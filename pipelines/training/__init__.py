"""Training: from a configuration to a run directory, its evaluation and its figures."""
