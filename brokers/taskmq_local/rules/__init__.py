"""Decisions of the embedded stores, shared by `local://` and `memory://`. Pure."""
