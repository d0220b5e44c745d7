"""Workflows: calls that wait for others.

    steps, chains, groups, dags, batches -> `WorkflowContent` -> a run in the job store

Every workflow is one graph, however it is written: steps, the steps before each one, and a rule that decides when it
starts. Schedulers advance runs (`taskmq.scheduler.runs`); workers run the jobs of steps like other jobs.
"""

__all__: list[str] = []
