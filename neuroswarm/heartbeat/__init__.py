"""Heartbeats over sealed datagrams: telling others that this node lives, hearing that they do."""
