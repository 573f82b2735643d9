"""Trained states as files that other programs read."""
