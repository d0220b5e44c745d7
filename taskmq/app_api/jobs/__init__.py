"""Jobs of the store, alone and many at once, and the tasks and definitions that they are made from."""
