"""From the broker to a free slot: which delivery runs next.

The `Backlog` holds deliveries that wait for a slot, by priority class. The dispatcher gives slots; `ordered_shards`
keeps ordered queues in order, `resources` counts what tasks need beyond a slot, and `prefetch_tuner` adapts how many
deliveries the worker asks for.
"""
