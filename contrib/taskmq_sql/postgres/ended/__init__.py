"""Ended jobs: their retention, and running them again."""
