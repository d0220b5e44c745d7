"""Values and decisions that everything else is built from. Pure: no clock, no randomness, no input or output.

An `Envelope` is one message: which task, which arguments, which attempt. `codec` turns arguments into bytes and back
by the task's signature. An `Outcome` is how an attempt ended; `states` says which job state may follow which.
`topology` names queues and their companions at a broker; `retry` says whether and when a failed attempt runs again.

Adapters may import this package, `taskmq.contracts` and `taskmq.errors`, and nothing else of taskmq.
"""
