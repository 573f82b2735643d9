"""Models as ordered lists of fragments, and the built-in ones: a transformer and RWKV-7."""
