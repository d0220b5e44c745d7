"""Tasks: functions that can be called here, or sent and run by a worker.

A `Task` belongs to an app; a `Call` is a task with its options for one call. Neither talks to a broker: both build
the message and pass it to the app's producer.
"""
