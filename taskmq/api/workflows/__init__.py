"""Schemas of workflows and their runs."""
