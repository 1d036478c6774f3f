"""Pictures of any size as a net takes them, in TensorFlow operations that SavedModel and ONNX have too."""
