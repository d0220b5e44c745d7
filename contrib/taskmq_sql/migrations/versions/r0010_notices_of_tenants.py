"""Whose a notice of alerts is."""

import json

from alembic import op
from sqlalchemy import text

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None
understood_by_previous = True


def upgrade() -> None:
    # A scheduler of the version before writes none: what it writes meanwhile is the instance's.
    op.execute("alter table taskmq.alert_notice add column tenant text collate \"C\" not null default ''")
    connection = op.get_bind()
    for notice_id, content in connection.execute(text("select id, content from taskmq.alert_notice")).all():
        # Not in SQL: PostgreSQL refuses JSON that has a NUL anywhere, as what people write about a rule may.
        if tenant := json.loads(content)["rule"].get("tenant"):
            connection.execute(
                text("update taskmq.alert_notice set tenant = :tenant where id = :id"),
                {"tenant": tenant, "id": notice_id},
            )
    op.execute("create index alert_notice_tenant on taskmq.alert_notice (tenant, at)")
