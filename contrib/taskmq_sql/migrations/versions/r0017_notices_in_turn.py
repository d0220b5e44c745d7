"""Notices of alerts by the tenant whose turn it is, and the host that they go to."""

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None
understood_by_previous = True


def upgrade() -> None:
    # A scheduler of the version before names none: such a notice is one of a host without a name.
    op.execute("alter table taskmq.alert_notice add column host text collate \"C\" not null default ''")
    op.execute("create index alert_notice_due on taskmq.alert_notice (tenant, next_at, id) where next_at is not null")
    op.execute("drop index taskmq.alert_notice_next")
