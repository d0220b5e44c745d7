"""Random histories that a job store is compared on with the reference."""
