"""The stores of the state, one module each; every call is one script."""
