"""A whole node: its parts wired together, the life of its rounds, its public face."""
