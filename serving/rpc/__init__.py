"""Endpoint over gRPC: the Open Inference Protocol, TF Serving, and health."""
