"""What reads a model version, without TensorFlow, Keras or the training pipeline: `serving` is fed by files alone.

A model repository is a folder of versions, `models/<name>/<version>/`; `serving.manifest` says what is in one.
"""
