"""Jobs that were sent: waiting for them, asking how far they are, cancelling them.

`Job` is the handle that `send` returns. `as_completed` yields the results of many jobs as they end. `delayed` lists
and changes jobs that wait for their time in the state.
"""
