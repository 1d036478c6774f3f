"""What `highway analyze` does: measures one trained net, draws it, and writes a page about it."""
