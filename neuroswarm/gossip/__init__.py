"""Spreading statements and pulling what they speak of, between members."""
