"""Add the records of sent jobs."""

from typing import Final

from alembic import op

revision = "0119"
down_revision = "0116"
branch_labels = None
depends_on = None
understood_by_previous = True

_STATEMENTS: Final = (
    """create table taskmq.sent_job (
      id uuid primary key, sent bigint not null, started bigint not null, ended bigint, due bigint,
      version integer not null, attempt integer not null, processor_ms integer, priority smallint not null,
      state smallint not null, name text not null, key text, tenant text collate "C" not null,
      task text collate "C" not null, queue text not null, worker text not null, error_type text,
      error_message text, traceback text, earlier text
    )""",
    "create index sent_job_tenant on taskmq.sent_job (tenant, id)",
    # State 5 is that of jobs that succeeded.
    "create index sent_job_state on taskmq.sent_job (state, id) where state <> 5",
    "create index sent_job_key on taskmq.sent_job (key, tenant, id) where key is not null",
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.get_bind().exec_driver_sql(statement)
