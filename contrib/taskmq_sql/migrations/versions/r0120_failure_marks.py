"""Add the marks of groups of failures."""

from alembic import op

revision = "0120"
down_revision = "0119"
branch_labels = None
depends_on = None
understood_by_previous = True


def upgrade() -> None:
    op.get_bind().exec_driver_sql(
        'create table taskmq.failure_mark (tenant text collate "C" not null, task text collate "C" not null, '
        'error text collate "C" not null, state text not null, at bigint not null, until bigint, '
        "actor text not null, note text not null, primary key (tenant, task, error))"
    )
