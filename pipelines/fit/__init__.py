"""From labelled images of the user's own to a model that can be served."""
