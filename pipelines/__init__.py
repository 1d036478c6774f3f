"""The program `highway`, with one file per verb. It imports `highway_keras`, never the other way round."""
