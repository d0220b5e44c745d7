"""Reference models that hypothesis compares a state's stores with."""
