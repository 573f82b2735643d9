"""A Kademlia table of signed records, over sealed datagrams: who is there, and where."""
