"""Training: what `pipelines.train` puts together."""
