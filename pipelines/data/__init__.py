"""Images and labels: where they come from, what is done to them, and how they reach the net."""
