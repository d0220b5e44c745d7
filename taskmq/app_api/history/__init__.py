"""The history of jobs: logs, metrics, failures and alerts."""
