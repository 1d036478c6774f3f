"""Gradients through plain, residual and highway nets: the probe, its tables and figures."""
