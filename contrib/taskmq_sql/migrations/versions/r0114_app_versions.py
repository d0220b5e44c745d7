"""Add the versions of the app that workers announced."""

from alembic import op

revision = "0114"
down_revision = "0111"
branch_labels = None
depends_on = None
understood_by_previous = True


def upgrade() -> None:
    op.get_bind().exec_driver_sql(
        'create table taskmq.worker_version (worker text collate "C" not null, version text collate "C" not null, '
        "first bigint not null, last bigint not null, primary key (worker, version)) with (fillfactor = 80)"
    )
