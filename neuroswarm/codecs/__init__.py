"""Codecs: pseudo-gradients to few bytes and back, the same bits everywhere."""
