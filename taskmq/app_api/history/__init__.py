"""What happened and what is wrong: logs of jobs, figures, failures, alerts."""
