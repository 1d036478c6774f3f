"""Pictures as people have them, to the pixels that a net takes: TensorFlow functions that a SavedModel and ONNX can hold."""
