"""`memory://`: the broker and the state of one process, for tests and demonstrations."""
