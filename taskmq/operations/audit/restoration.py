"""Access control after a restored backup: users and tokens that were shut out since then lose access again.

A backup brings back tokens that were revoked, sessions that had ended and users that were disabled after it was
made. The restored store has lost those changes, but an export of the audit log still has them. This module repeats
only the changes that take access away. Write access to the export can therefore remove access, but never grant it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from taskmq.contracts.identity import Actor, IdentityStore, UserAccount, UserChange
from taskmq.errors import IdentityConflict, InvalidOption
from taskmq.model.identity import EVERYTHING_OF_ALL, AuditRecord, ChainLink, Membership, broken_link

_PAGE: Final = 200
# An entry's time is the start of its transaction; a backup contains the transactions that had committed.
_MARGIN_MS: Final = 600_000
_BYTES: Final = ("who_salt", "who_commitment", "what_salt", "what_commitment", "hash")


class RestoredStep(NamedTuple):
    """A change that was made, or one that people have to decide on.

    Attributes:
        subject: name or id of the user, token or tenant.
        is_done: False if the decision is left to people.
    """

    what: str
    subject: str
    is_done: bool


class _Restrictions(msgspec.Struct):
    """Access that was revoked by the end of an export. Users and tokens are listed by id, tenants by name.

    Attributes:
        disabled: whether each user is disabled.
        tenants: whether each tenant is disabled or removed.
        roles: last membership by user and tenant; None if it was removed.
        passwords: when each user's password was last changed (ms).
        others: users and tokens added since the backup, by id.
    """

    tokens: set[str] = msgspec.field(default_factory=set[str])
    erased: set[str] = msgspec.field(default_factory=set[str])
    disabled: dict[str, bool] = msgspec.field(default_factory=dict[str, bool])
    passwords: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    roles: dict[tuple[str, str], Membership | None] = msgspec.field(
        default_factory=dict[tuple[str, str], Membership | None]
    )
    tenants: dict[str, bool] = msgspec.field(default_factory=dict[str, bool])
    removed_tenants: set[str] = msgspec.field(default_factory=set[str])
    others: dict[str, RestoredStep] = msgspec.field(default_factory=dict[str, RestoredStep])


def read_export(lines: Iterable[str]) -> list[AuditRecord]:
    """Read an export of the audit log and verify its chain from the first entry on.

    Raises:
        InvalidOption: a line is not an entry, or the chain is broken.
    """
    records: list[AuditRecord] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            records.append(_parse_record(msgspec.json.decode(line)))
        except (msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError) as error:
            raise InvalidOption(f"line {number} is not an entry of `taskmq audit export`: {error!r}") from None
    if fault := broken_link(ChainLink(), records):
        raise InvalidOption(f"the export of the audit log is damaged; nothing was changed: {fault}")
    return records


async def restrict_again(
    store: IdentityStore, *, since: int, export: list[AuditRecord] | None, revokes_tokens: bool, by: Actor
) -> list[RestoredStep]:
    """End all sessions and revoke again what was revoked since the backup.

    Returns the steps that were taken and those left to people. Calling it again skips what is already done.

    Args:
        since: when the backup was made (ms).
        export: the audit log, from `read_export`; None if there is no export.
        revokes_tokens: whether to revoke all tokens.

    Raises:
        InvalidOption: the export belongs to another store; nothing was changed.
    """
    if export is not None:
        await _check_origin(store, export)
    by = replace(by, note=by.note or "after a restored backup")
    steps = await _end_sessions(store, by)
    if export is None:
        what = "no export shows who was disabled and which access was revoked; review"
        steps.append(RestoredStep(what, "users, roles, tenants", is_done=False))
    else:
        found = _collect_restrictions(record for record in export if record.at >= since - _MARGIN_MS)
        steps += await _apply(store, found, by)
        there = (await _names(store)).keys() | {token.id for token in await store.credentials.tokens()}
        steps += [step for each, step in found.others.items() if each not in there]
    steps += await _review_tokens(store, revokes=revokes_tokens, by=by)
    facts: dict[str, object] = {
        "since": since,
        "has_export": export is not None,
        "done": sum(step.is_done for step in steps),
        "left": sum(not step.is_done for step in steps),
    }
    await store.audit.add([by.entry("store.restored", kind="store", after=facts)])
    return steps


async def _check_origin(store: IdentityStore, export: list[AuditRecord]) -> None:
    first = await store.audit.chain(limit=1)
    if not export or (first and first[0].hash != export[0].hash):
        raise InvalidOption("the export belongs to another store (its first entry differs); nothing was changed")


async def _end_sessions(store: IdentityStore, by: Actor) -> list[RestoredStep]:
    steps: list[RestoredStep] = []
    for user_id, name in (await _names(store)).items():
        for session in await store.credentials.sessions(user_id):
            await store.credentials.end_session(session.id, by=by)
            steps.append(RestoredStep("session ended", name, is_done=True))
    return steps


async def _apply(store: IdentityStore, found: _Restrictions, by: Actor) -> list[RestoredStep]:
    steps: list[RestoredStep] = []
    for token in await store.credentials.tokens():
        if token.id in found.tokens:
            await store.credentials.revoke_token(token.id, by=by)
            steps.append(RestoredStep("token revoked", f"{token.id} ({token.name})", is_done=True))
    people = found.erased | found.disabled.keys() | found.passwords.keys() | {user for user, _ in found.roles}
    for user_id in sorted(people):
        account = await store.accounts.account(user_id)
        if account is not None:
            try:
                steps += await _restrict(store, account, found, by)
            except IdentityConflict as error:
                # The restored store may have no other admin: another one was promoted only after the backup.
                steps.append(RestoredStep(f"not done: {error}", account.user.name, is_done=False))
    for tenant in await store.accounts.tenants(EVERYTHING_OF_ALL):
        if tenant.name in found.removed_tenants:
            await store.accounts.remove_tenant(tenant.name, by=by)
            steps.append(RestoredStep("tenant removed", tenant.name, is_done=True))
        elif found.tenants.get(tenant.name) and tenant.disabled is None:
            await store.accounts.change_tenant(tenant.name, by=by, is_disabled=True)
            steps.append(RestoredStep("tenant disabled", tenant.name, is_done=True))
    return steps


async def _restrict(
    store: IdentityStore, account: UserAccount, found: _Restrictions, by: Actor
) -> list[RestoredStep]:
    user, steps = account.user, list[RestoredStep]()
    if user.id in found.erased:
        await store.accounts.erase_user(user.id, by=by)
        return [RestoredStep("user erased", user.id, is_done=True)]
    if found.disabled.get(user.id) and user.disabled is None:
        await store.accounts.change_user(user.id, UserChange(is_disabled=True), by=by)
        steps.append(RestoredStep("user disabled", user.name, is_done=True))
    if user.password_changed is not None and user.password_changed < found.passwords.get(user.id, 0):
        await store.accounts.change_user(user.id, UserChange(password_hash=""), by=by)
        steps.append(RestoredStep("old password disabled", user.name, is_done=True))
        steps.append(
            RestoredStep(f"needs a password: taskmq admin user password {user.name}", user.name, is_done=False)
        )
    for has in account.memberships:
        if (user.id, has.tenant) not in found.roles:
            continue
        after = found.roles[user.id, has.tenant]
        what = f"{has.role} of {has.tenant}"
        if after is None:
            await store.accounts.remove_membership(user.id, has.tenant, by=by)
            steps.append(RestoredStep(f"role removed: {what}", user.name, is_done=True))
        elif after != has and has.role.includes(after.role) and (after.tasks == has.tasks or "*" in has.tasks):
            await store.accounts.set_membership(user.id, after, by=by)
            steps.append(RestoredStep(f"role reduced from {what} to {after.role}", user.name, is_done=True))
        elif after != has:
            was = f"{after.role} with {', '.join(after.tasks)}"
            steps.append(RestoredStep(f"is {what}, was {was} before the restore", user.name, is_done=False))
    return steps


async def _review_tokens(store: IdentityStore, *, revokes: bool, by: Actor) -> list[RestoredStep]:
    steps: list[RestoredStep] = []
    names = await _names(store)
    for token in await store.credentials.tokens():
        whose = f"{token.id} ({token.name}) of {names.get(token.user_id, token.user_id)}"
        if revokes:
            await store.credentials.revoke_token(token.id, by=by)
        steps.append(
            RestoredStep(
                "token revoked" if revokes else "token is valid; revoke it if unwanted", whose, is_done=revokes
            )
        )
    return steps


async def _names(store: IdentityStore) -> dict[str, str]:
    """Return the names of all users by id."""
    found: dict[str, str] = {}
    after = ""
    while page := await store.accounts.users(after=after, limit=_PAGE):
        found |= {user.id: user.name for user in page}
        after = page[-1].name
    return found


def _collect_restrictions(records: Iterable[AuditRecord]) -> _Restrictions:
    found = _Restrictions()
    for record in records:
        entry = record.entry()
        before, after = entry.before or {}, entry.after or {}
        match record.action:
            case "token.revoke":
                found.tokens.add(record.subject)
                found.others.pop(record.subject, None)
            case "user.erase":
                found.erased.add(record.subject)
                found.others.pop(record.subject, None)
            case "user.change" if "is_disabled" in after:
                found.disabled[record.subject] = bool(after["is_disabled"])
            case "user.password":
                found.passwords[record.subject] = record.at
            case "role.remove" if before:
                found.roles[record.subject, str(before["tenant"])] = None
            case "role.set" if after:
                found.roles[record.subject, str(after["tenant"])] = msgspec.convert(after, Membership, strict=False)
            case "tenant.change":
                found.tenants[record.subject] = bool(after.get("is_disabled"))
            case "tenant.remove":
                found.tenants[record.subject] = True
                found.removed_tenants.add(record.subject)
            case "tenant.add":
                found.removed_tenants.discard(record.subject)
                found.tenants[record.subject] = False
            case "user.add" | "token.add":
                what = f"{record.kind} added since the backup; add it again if wanted"
                found.others[record.subject] = RestoredStep(what, str(after.get("name", "")), is_done=False)
            case _:
                continue
    return found


def _parse_record(facts: Mapping[str, Any]) -> AuditRecord:
    """Parse one record of an export; the reverse of `export_record`."""
    plain = dict(facts)
    for name in _BYTES:
        plain[name] = None if plain[name] is None else bytes.fromhex(plain[name])
    for name in ("who", "what"):
        plain[name] = None if plain[name] is None else plain[name].encode()
    record = AuditRecord(**plain)
    if record.position is None or record.hash is None:
        raise ValueError("the entry is not sealed")
    return record
