"""One round's agreement and the lineages of rounds, as pure state machines."""
