"""Messages out, each confirmed by the broker.

One channel in confirm mode with a window of unconfirmed messages (`publisher`). A message that the broker refuses is
found and fails alone (`refusals`); a channel that stops confirming is probed and replaced (`probe_channel`).
"""
