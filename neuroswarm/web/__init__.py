"""The HTTP face of a node: health, status, metrics, dashboard, and the tracker's endpoint."""
