"""Leave more than half of each page of `job` free, so that a dispatch of all its jobs stays in the page (HOT).

With three tenths, half of the jobs dispatched together moved to another page, with an entry in the index. Pages
written before stay as full as they are.
"""

from alembic import op

revision = "0123"
down_revision = "0122"
branch_labels = None
depends_on = None
understood_by_previous = True


def upgrade() -> None:
    op.get_bind().exec_driver_sql("alter table taskmq.job set (fillfactor = 45)")
