"""History of runs: log lines, figures by the minute, failures, alerts. Pure."""
