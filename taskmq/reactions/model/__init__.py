"""Conditions, events and the decision when to call. Pure: does not access files, messages or the state."""
