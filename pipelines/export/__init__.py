"""Engine of `highway export`: traces the graph, writes all forms, measures parity and publishes the version folder."""
