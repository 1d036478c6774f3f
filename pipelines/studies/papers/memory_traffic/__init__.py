"""Bytes that a training step moves: counted from its compiled program, derived by hand, and timed beside copies."""
