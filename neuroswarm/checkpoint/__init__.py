"""What a node keeps on disk: checkpoints, signed rounds, its locked state folder."""
