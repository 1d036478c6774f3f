"""Plain, residual and highway convolutional nets with equally many parameters, and in equal training time."""
