"""`python -m benchmarks.fairness`: the scheduler's own decisions, in virtual time, beside what others decide."""
