"""Add the versions of the app that were tried for jobs that their code held."""

from alembic import op

revision = "0115"
down_revision = "0114"
branch_labels = None
depends_on = None
understood_by_previous = True


def upgrade() -> None:
    op.get_bind().exec_driver_sql(
        'create table taskmq.tried_version (id uuid not null, version text collate "C" not null, '
        "primary key (id, version))"
    )
