"""What is remembered of runs: lines of their logs, figures by the minute, failures, alerts. Pure."""
