"""Workflows and runs, on PostgreSQL and SQLite alike.

    store        the calls of a `RunStore`
    workflows    versions of workflows and their contents
    starts       new runs
    inbox        events of runs: sent rows, timers, pending runs
    transitions  one transaction of the state machine
    known_runs   runs as they were written last
    places       places of runs whose workflow limits them
    quotas       quotas of the jobs of steps
    values       steps, their values and results of their jobs
    lists        lists of runs
    deletion     of ended runs, in portions

Calls are generators of statements, like those of `taskmq_sql.identity`. A transaction locks the row of its run first,
so a run has one writer. Ends of jobs only insert rows into the inbox, without a lock.
"""

from taskmq_sql.runs.store import SqlRuns

__all__ = ["SqlRuns"]
