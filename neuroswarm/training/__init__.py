"""Training on this machine: the compute thread, the inner loop, the corpus."""
