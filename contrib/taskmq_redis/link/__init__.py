"""Connections to Redis: calls that share round trips, one server or a cluster, and published changes."""
