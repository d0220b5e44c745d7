"""Publishing of messages, each confirmed by the broker.

There is one channel in confirm mode with a window of unconfirmed messages (`publisher`). A message that the broker
refuses is identified and fails alone (`refusals`); a channel that stops confirming is probed and replaced
(`probe_channel`).
"""
