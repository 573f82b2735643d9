"""How many bytes a node moves: counted, kept, held to what its owner allows."""
