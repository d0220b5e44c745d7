"""Random histories that compare a job store with the reference."""
