"""Wire formats: from the bytes of a request to arrays, and from outputs to the bytes of an answer."""
