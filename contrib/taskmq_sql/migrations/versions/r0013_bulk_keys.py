"""Keys of requests that have begun a bulk."""

from alembic import op
from sqlalchemy import Column, Text

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None
understood_by_previous = True


def upgrade() -> None:
    op.add_column("bulk", Column("key", Text), schema="taskmq")
    op.create_index("bulk_key", "bulk", ["key"], unique=True, schema="taskmq")
