"""Live events of jobs and workers, and commands to workers, for operators of an app.

`stream` reads what workers publish while a reader is present; nothing is stored. `control` sends commands and
collects the answers. The messages are `taskmq.model.telemetry.events` and `taskmq.model.commands`.
"""
