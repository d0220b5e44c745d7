"""Tasks: functions that can be called here, or sent and run by a worker.

A `Task` belongs to an app; a `Call` is a task with its options for one call. Neither talks to a broker: both build
the message and hand it to the app's producer (`taskmq.tasks.sender` is what they need of it).
"""
