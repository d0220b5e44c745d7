"""Opening a connection and opening it again: addresses, credentials, TLS, pauses, and noticing that it is dead."""
