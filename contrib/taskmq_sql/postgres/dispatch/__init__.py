"""Dispatch of jobs on PostgreSQL, and their withdrawal."""
