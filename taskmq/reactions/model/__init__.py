"""What may happen, what has happened, and what follows from it. Pure: files, messages and the state are elsewhere."""
