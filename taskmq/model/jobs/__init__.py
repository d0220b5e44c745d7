"""Stored jobs: operations on them, reports of workers, and filters. Pure.

A stored job is one authoritative row. Every operation is a transition that `taskmq.model.states` allows, and applies
only if the row still has the state and version that the decision was made for. These modules decide; stores compare
and set.
"""
