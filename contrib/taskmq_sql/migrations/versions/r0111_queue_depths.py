"""Add the depths of queues by the minute."""

from alembic import op

revision = "0111"
down_revision = "0109"
branch_labels = None
depends_on = None
understood_by_previous = True


def upgrade() -> None:
    op.get_bind().exec_driver_sql(
        'create table taskmq.queue_depth (minute bigint not null, queue text collate "C" not null, '
        "stored bigint not null, ready bigint not null, in_hand bigint not null, primary key (minute, queue))"
    )
