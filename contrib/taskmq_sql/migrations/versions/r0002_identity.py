"""Who may do what: tenants that were added, users, roles, sessions, tokens, failed logins, and the audit."""

from typing import Any, Final

from alembic import op
from sqlalchemy import (
    BigInteger,
    Column,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.types import TypeEngine

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None
understood_by_previous = True

metadata: Final = MetaData(schema="taskmq")

# Users are listed in the order of their names: in that of the letters' numbers.
_NAME_KEY: Final[TypeEngine[Any]] = Text(collation="C")
_EMPTY: Final = text("''")

Table(
    "user",
    metadata,
    Column("id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("name_key", _NAME_KEY, nullable=False),
    Column("email", Text, nullable=False),
    Column("password", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("version", Integer, nullable=False),
    Column("disabled", BigInteger),
    Column("password_changed", BigInteger),
    Column("last_login", BigInteger),
    PrimaryKeyConstraint("id", name="user_pkey"),
    UniqueConstraint("name_key", name="user_name_key"),
)

Table(
    "membership",
    metadata,
    Column("user_id", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("tasks", Text, nullable=False),
    PrimaryKeyConstraint("user_id", "tenant", name="membership_pkey"),
    Index("membership_tenant", "tenant"),
)

Table(
    "session",
    metadata,
    Column("digest", LargeBinary, nullable=False),
    Column("id", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("last_used", BigInteger, nullable=False),
    Column("idle_ms", BigInteger, nullable=False),
    Column("ends", BigInteger, nullable=False),
    Column("address", Text, nullable=False),
    Column("agent", Text, nullable=False),
    PrimaryKeyConstraint("digest", name="session_pkey"),
    UniqueConstraint("id", name="session_id_key"),
    Index("session_user", "user_id"),
)

Table(
    "token",
    metadata,
    Column("digest", LargeBinary, nullable=False),
    Column("id", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("scopes", Text),
    Column("tenants", Text),
    Column("tasks", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("expires", BigInteger),
    Column("last_used", BigInteger),
    PrimaryKeyConstraint("digest", name="token_pkey"),
    UniqueConstraint("id", name="token_id_key"),
    UniqueConstraint("user_id", "name", name="token_name_key"),
)

Table(
    "login_failure",
    metadata,
    Column("key", Text, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("at", BigInteger, nullable=False),
    PrimaryKeyConstraint("key", name="login_failure_pkey"),
)

Table(
    "audit",
    metadata,
    Column("number", BigInteger, Identity(always=True), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("action", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("tenant", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    Column("via", Text, nullable=False),
    Column("credential", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("who", LargeBinary),
    Column("who_salt", LargeBinary),
    Column("who_commitment", LargeBinary, nullable=False),
    Column("what", LargeBinary),
    Column("what_salt", LargeBinary),
    Column("what_commitment", LargeBinary, nullable=False),
    PrimaryKeyConstraint("number", name="audit_pkey"),
    Index("audit_at", "at"),
    Index("audit_tenant", "tenant", "number"),
    Index("audit_user", "user_id", "number"),
    Index("audit_subject", "kind", "subject", "number"),
)

Table(
    "audit_seal",
    metadata,
    Column("position", BigInteger, nullable=False, autoincrement=False),
    Column("number", BigInteger, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    PrimaryKeyConstraint("position", name="audit_seal_pkey"),
    UniqueConstraint("number", name="audit_seal_number_key"),
)


def upgrade() -> None:
    metadata.create_all(op.get_bind(), checkfirst=False)
    # Of a tenant that was not added, but which jobs name, `created` is null.
    op.add_column("tenant", Column("created", BigInteger), schema="taskmq")
    op.add_column("tenant", Column("disabled", BigInteger), schema="taskmq")
    op.add_column("tenant", Column("description", Text, nullable=False, server_default=_EMPTY), schema="taskmq")
