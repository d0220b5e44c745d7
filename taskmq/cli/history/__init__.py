"""Commands about the past: statistics, failures and alerts."""
