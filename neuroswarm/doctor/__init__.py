"""What keeps a node from training here, and from being reached; each finding with its fix."""
