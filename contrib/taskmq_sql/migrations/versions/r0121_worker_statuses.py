"""Add the last status of each worker process."""

from alembic import op

revision = "0121"
down_revision = "0120"
branch_labels = None
depends_on = None
understood_by_previous = True


def upgrade() -> None:
    op.get_bind().exec_driver_sql(
        'create table taskmq.worker_status (name text collate "C" not null, host text collate "C" not null, '
        "pid bigint not null, heard bigint not null, status text not null, primary key (name, host, pid))"
    )
