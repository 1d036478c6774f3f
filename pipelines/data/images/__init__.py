"""Images of any size as the input of a net, in TensorFlow operations that SavedModel and ONNX share."""
