"""The program `highway`: one file a verb. It imports `highway_keras`, never the other way round."""
