"""One module per store of the state; each call is one script."""
