"""Bytes of what nodes say to one another: limits, signed statements, messages, tensors."""
