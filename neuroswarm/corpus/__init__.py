"""What to train on, from files: text, and token shards made of it."""
