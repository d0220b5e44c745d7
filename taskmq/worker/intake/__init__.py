"""Intake: choice of the delivery that gets the next free slot.

The `Backlog` holds deliveries that wait for a slot, by priority class. The dispatcher assigns slots; `ordered_shards`
keeps ordered queues in order, `resources` counts what tasks need beyond a slot, and `prefetch_tuner` adapts the
number of deliveries that the worker requests.
"""
