"""What is kept of jobs that have ended, and for how long."""
