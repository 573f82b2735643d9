"""What carries bytes between nodes for real: gRPC with mutual TLS, sealed datagrams."""
