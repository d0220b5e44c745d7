"""Consumption: one channel per consumed queue, consumers that recover, and browsing without consuming."""
