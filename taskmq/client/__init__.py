"""The client side of an app: connections, sending, and queries about jobs.

    producer  every send: defaults, middleware, uniqueness, confirm
    bulk      many messages with pipelined confirms
    unique    jobs of which only one per key may wait or run
    session   one event loop's connections; `sessions` finds or opens it
    portal    the daemon thread that serves callers without an event loop

A `send` ends with the broker's confirm or with a typed error, never silently.
"""
