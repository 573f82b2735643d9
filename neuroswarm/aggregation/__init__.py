"""Robust aggregation of low-bit contributions, exact to the last bit on every machine."""
