"""Contents of runs from written workflows. Pure."""
