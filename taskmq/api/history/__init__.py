"""What happened and what is wrong: lines of logs, figures, alerts."""
