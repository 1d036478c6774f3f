"""Engine of `highway export`: traces the graph, writes every form, measures parity, publishes the version folder."""
