"""Add the claims of dispatched jobs; `until`, `content_type` and `result` outlive the history of the holder."""

from alembic import op

revision = "0103"
down_revision = "0102"
branch_labels = None
depends_on = None
understood_by_previous = True

_STATEMENTS = (
    """create table taskmq.claim (
  name text collate "C" not null, place integer not null, job uuid, token bigint, fence bigint not null, ttl bigint,
  until bigint, content_type text, result bytea, primary key (name, place)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0)""",
    "create index gated_gate on taskmq.gated (gate, priority desc, due, id)",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.get_bind().exec_driver_sql(statement)
