"""The history of jobs: logs, figures, failures, alerts."""
