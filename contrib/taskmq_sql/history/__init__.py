"""What is remembered of runs, on PostgreSQL and SQLite alike.

Calls are generators of statements, as those of `taskmq_sql.identity`.

    job_log        a row for each line; `token` and `line` tell it from every other line of its job
    rollup         the figures of one minute, task, queue and tenant, as JSON
    rollup_sum     the same added up: of a quarter of an hour, of all tenants, and of both
    run_failure    jobs of the broker lane that have ended badly
    alert_rule     when there is to be an alert
    alert          what has become of each rule and subject; never deleted while the rule is there
    alert_silence  which alerts are silenced
    alert_notice   what is to be sent, and was
"""

from taskmq_sql.history.store import SqlHistory

__all__ = ["SqlHistory"]
