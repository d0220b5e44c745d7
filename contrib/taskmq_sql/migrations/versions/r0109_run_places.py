"""Add the places of runs whose workflow limits them.

The previous code cannot read queued runs: start runs of a workflow with `max_active_runs` after the upgrade.
"""

from typing import Final

from alembic import op

revision = "0109"
down_revision = "0108"
branch_labels = None
depends_on = None
understood_by_previous = True

_STATEMENTS: Final = (
    """
create table taskmq.run_place (
  run uuid primary key, tenant text collate "C" not null, workflow text collate "C" not null, created bigint not null,
  generation integer not null, most integer not null, is_active boolean not null default false
)""",
    "create index run_place_order on taskmq.run_place (tenant, workflow, created, run)",
    "create index run_place_active on taskmq.run_place (tenant, workflow) where is_active",
    "create index run_place_waiting on taskmq.run_place (tenant, workflow, created, run) where not is_active",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.get_bind().exec_driver_sql(statement)
