"""Add the instant of their start to runs: lists sort by it, since ids derived from names do not sort by time."""

from typing import Final

from alembic import op

revision = "0106"
down_revision = "0105"
branch_labels = None
depends_on = None
understood_by_previous = True

_STATEMENTS: Final = (
    # The default is for runs that the previous code starts during an upgrade.
    "alter table taskmq.run add column created bigint not null default taskmq.now_ms()",
    "update taskmq.run set created = coalesce((convert_from(record, 'UTF8')::json ->> 'created')::bigint, 0)",
    "drop index taskmq.run_tenant",
    "drop index taskmq.run_workflow",
    "drop index taskmq.run_state",
    "drop index taskmq.run_parent",
    "create index run_created on taskmq.run (created, id)",
    "create index run_tenant on taskmq.run (tenant, created, id)",
    "create index run_workflow on taskmq.run (tenant, workflow, created, id)",
    "create index run_state on taskmq.run (state, created, id) where state <> 2",
    "create index run_parent on taskmq.run (parent, created, id) where parent is not null",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.get_bind().exec_driver_sql(statement)
