"""Opening and reopening of a connection: addresses, credentials, TLS, pauses, and detection of its loss."""
