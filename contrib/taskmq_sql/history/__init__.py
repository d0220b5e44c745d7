"""Run history on PostgreSQL and SQLite: logs, metrics, failures and alerts.

Calls are generators of statements, like those of `taskmq_sql.identity`.

    job_log        one row per line; `token` and `line` identify it within its job
    rollup         metrics of one minute, task, queue and tenant, as JSON
    rollup_sum     the same, summed by quarter of an hour, over all tenants, and both
    run_failure    failed runs of jobs that did not come from the store
    sent_job       sent jobs of recorded queues, each with its last run in columns and earlier ones as JSON
    failure_mark   groups of failures that operators resolved or muted
    alert_rule     conditions that raise alerts
    alert          current state of each rule and subject; kept as long as its rule
    alert_silence  which alerts are silenced
    alert_notice   notices to send, and those sent
"""

from taskmq_sql.history.store import SqlHistory

__all__ = ["SqlHistory"]
