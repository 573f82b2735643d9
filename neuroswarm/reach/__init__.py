"""Whether others reach this node, found out by asking them to call back."""
