"""Gradients through plain, residual and highway nets: what is watched of them, and what is made of it."""
