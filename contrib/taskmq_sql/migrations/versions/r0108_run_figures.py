"""Add the instant at which a schedule's run is due, and the indexes of figures of runs."""

from typing import Final

from alembic import op

revision = "0108"
down_revision = "0106"
branch_labels = None
depends_on = None
understood_by_previous = True

_STATEMENTS: Final = (
    # It is null for runs that started before the upgrade, which are never late.
    "alter table taskmq.run add column due bigint",
    "create index run_figures on taskmq.run (tenant, workflow, state, coalesce(ended, created))",
    "create index run_due on taskmq.run (tenant, workflow, due) where ended is null and due is not null",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.get_bind().exec_driver_sql(statement)
