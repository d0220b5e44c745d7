"""Middleware: code around every send and every execution.

One chain serves both directions, built once at start. A `Sending` holds what may be changed before a message is
published; an `Execution` is a run that a worker is about to start.
"""
