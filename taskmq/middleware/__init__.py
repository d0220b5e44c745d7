"""Middleware: code around every send and every execution.

One chain for both directions, built once at start. A `Sending` is what may be changed before a message leaves; an
`Execution` is what a worker is about to run.
"""
