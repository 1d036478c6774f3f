"""Hyperparameter search with KerasTuner, by processes that may be killed at any moment."""
