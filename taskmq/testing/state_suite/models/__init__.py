"""Reference models with which hypothesis compares a state's stores."""
