"""Parts that both SQL job stores share: table names, codes of states, conversions of values."""
