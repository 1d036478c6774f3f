"""Inference behind the routes: catalog of versions, backends, batching, image decoding, helper processes."""
