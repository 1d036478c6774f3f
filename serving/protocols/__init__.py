"""Wire formats: request bodies to arrays, outputs to response bodies, without a web framework."""
