"""Engine of `highway fit`: from the user's own labelled images or table to a model that can be served."""
