"""Chief and workers of a search: KerasTuner over gRPC, made fault-tolerant."""
