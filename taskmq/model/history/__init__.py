"""History of runs: log lines, progress, saved values, figures by the minute, failures, alerts. Pure."""
