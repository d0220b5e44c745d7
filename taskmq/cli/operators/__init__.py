"""Commands for operators: each parses its options, calls one operation and prints what it returns."""
