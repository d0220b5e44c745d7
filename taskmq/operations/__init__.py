"""Operator actions as functions that return values.

The command line prints those values. Nothing here prints, prompts or exits.
"""
