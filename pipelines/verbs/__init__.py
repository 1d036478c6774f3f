"""The commands of `highway`: each reads its words, calls an engine and prints. Nothing imports a verb."""
