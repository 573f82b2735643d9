"""Models as ordered lists of fragments, and the built-in byte transformer."""
