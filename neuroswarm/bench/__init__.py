"""Benchmarks: what the swarm promises, measured on real training."""
