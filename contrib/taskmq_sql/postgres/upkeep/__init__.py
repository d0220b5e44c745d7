"""Upkeep of a database: daily partitions, and diagnosis."""
