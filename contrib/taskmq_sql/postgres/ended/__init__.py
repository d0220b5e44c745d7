"""Jobs that have ended: what is kept of them, for how long, and repeating them."""
