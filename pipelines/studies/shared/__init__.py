"""Nets, training and recorded numbers that several studies share."""
