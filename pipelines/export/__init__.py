"""The steps of `highway export`: the graph, the files, their parity, the version folder."""
