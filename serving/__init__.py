"""The endpoint and everything that reads a model version, without TensorFlow, Keras or the training pipeline.

Input is a model repository on disk: `models/<name>/<version>/`. `serving.manifest` describes the content of a version.
"""
