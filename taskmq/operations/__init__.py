"""What operators do, as functions that return values.

The command line prints these values; nothing in here prints, asks or exits.
"""
