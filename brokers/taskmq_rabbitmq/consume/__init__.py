"""Messages in: one channel per consumed queue, consumers that recover, and browsing a queue without consuming it."""
