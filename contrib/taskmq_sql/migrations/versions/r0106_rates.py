"""Add the rates of starts: `used` is the instant until which a rate is used up, in seconds since the epoch."""

from alembic import op

revision = "0106"
down_revision = "0105"
branch_labels = None
depends_on = None
understood_by_previous = True


def upgrade() -> None:
    op.get_bind().exec_driver_sql(
        """create table taskmq.rate (key text collate "C" primary key, used double precision not null)
        with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
              autovacuum_vacuum_cost_delay = 0)"""
    )
