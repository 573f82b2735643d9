"""Who is in the swarm: peers, their records and signs of life."""
