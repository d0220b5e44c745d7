"""What is kept of jobs that have ended, for how long, and how they are repeated."""
