"""Pipes through a third node, for nodes that others do not reach."""
