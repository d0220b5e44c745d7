"""History: log lines, metrics and alerts."""
