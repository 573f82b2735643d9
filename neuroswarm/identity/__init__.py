"""Who a node is and which swarm it may enter: keys, tokens, certificates, seals."""
