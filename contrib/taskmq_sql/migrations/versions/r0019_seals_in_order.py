"""A seal of the audit follows the last one."""

from typing import Final

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None
understood_by_previous = True

# A role that may insert could end the chain for ever with a seal at the last position that there can be.
_FUNCTION: Final = """
create function taskmq.check_seal() returns trigger language plpgsql as $$
declare following bigint := coalesce((select max(position) from taskmq.audit_seal), 0) + 1;
begin
  if new.position <> following then
    raise check_violation
      using message = format('the next seal has position %s, and not %s', following, new.position);
  end if;
  return new;
end $$"""
_TRIGGER: Final = """
create trigger audit_seal_follows before insert on taskmq.audit_seal
for each row execute function taskmq.check_seal()"""


def upgrade() -> None:
    op.execute(_FUNCTION)
    op.execute(_TRIGGER)
