"""What a fleet runs: the image, stack and compose files, and constraints, as package data."""
