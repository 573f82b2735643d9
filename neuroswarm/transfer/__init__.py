"""How outer states and shards get from their holders to a peer that lacks them."""
