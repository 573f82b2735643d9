"""What the machine that a node runs on tells of itself."""
