"""The keys by which a store knows the tokens that it has given out."""

import secrets
from base64 import urlsafe_b64encode
from typing import Final

from alembic import op
from sqlalchemy import (
    BigInteger,
    Column,
    Identity,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None
# A scheduler of the version before proves nothing, and the ends of its dispatches count while they are remembered.
understood_by_previous = True

# A copy: `taskmq_sql.jobs.tables` goes on, this stays what it was.
metadata: Final = MetaData(schema="taskmq")

Table(
    "report_key",
    metadata,
    Column("number", BigInteger, Identity(always=True), nullable=False),
    Column("id", Text, nullable=False),
    Column("secret", LargeBinary, nullable=False),
    Column("created", BigInteger, nullable=False),
    PrimaryKeyConstraint("number", name="report_key_pkey"),
    UniqueConstraint("id", name="report_key_id_key"),
)


def upgrade() -> None:
    connection = op.get_bind()
    metadata.create_all(connection, checkfirst=False)
    # With the tables: every backup has it, also one from before the first dispatch.
    connection.execute(
        text("insert into taskmq.report_key (id, secret, created) values (:id, :secret, taskmq.now_ms())"),
        {"id": urlsafe_b64encode(secrets.token_bytes(3)).decode(), "secret": secrets.token_bytes(32)},
    )
