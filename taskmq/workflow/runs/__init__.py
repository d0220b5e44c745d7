"""Runs of workflows in the job store, as an app starts, follows and changes them.

    Workflow.send -> content -> run -> Run
    app.runs      -> runs of all senders, and of stored workflows

Schedulers advance runs; see `taskmq.scheduler.runs`.
"""

__all__: list[str] = []
