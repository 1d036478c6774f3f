"""The commands of `highway`: each parses its arguments, calls an engine and prints. Nothing imports a verb."""
