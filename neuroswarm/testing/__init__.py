"""Doubles for tests of neuroswarm and of what is built on it: scripted time, scripted network."""
