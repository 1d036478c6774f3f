"""`highway tune`: a search over a recipe's space with KerasTuner, by processes that may be killed at any moment."""
