"""Memory traffic of a training step: counted from its program, bounded from below, and timed next to copies."""
