"""After a restored backup: who was shut out since then is shut out again.

A backup lets in again whose token was revoked, whose session has ended and who was disabled after it was made. The
store cannot know that any more; the audit does, if it was exported in time. From an export follows here what was
taken away, and nothing that was given: who may write that file shuts people out, and lets none in.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from taskmq.contracts.identity import Actor, IdentityStore, UserAccount, UserChange
from taskmq.errors import IdentityConflict, InvalidOption
from taskmq.model.identity import EVERYTHING_OF_ALL, AuditRecord, ChainLink, Membership, broken_link

__all__ = ["RestoredStep", "read_export", "shut_out_again"]

_PAGE: Final = 200
# An entry has the time at which its transaction began, and a backup has what was committed.
_MARGIN_MS: Final = 600_000
_BYTES: Final = ("who_salt", "who_commitment", "what_salt", "what_commitment", "hash")


class RestoredStep(NamedTuple):
    """Something that was done, or that people have to decide on.

    Attributes:
        subject: to whom or what: a name, or an id.
        is_done: False: it is left to people.
    """

    what: str
    subject: str
    is_done: bool


class _Restrictions(msgspec.Struct):
    """Rights that an export shows as taken away in the end. Users and tokens by id, tenants by name.

    Attributes:
        disabled: of users, and of tenants: whether each of them is.
        roles: by user and tenant; None: taken away.
        passwords: when each user got another one, ms.
        others: what was added since, which the backup does not have, by its id.
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
    """The entries of an export of the audit, whose chain is whole from its first entry on.

    Raises:
        InvalidOption: a line is no entry, or the chain is broken.
    """
    records: list[AuditRecord] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            records.append(_record(msgspec.json.decode(line)))
        except (msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError) as error:
            raise InvalidOption(f"line {number} is no entry of `taskmq audit export`: {error!r}") from None
    if fault := broken_link(ChainLink(), records):
        raise InvalidOption(f"the export of the audit is not whole, so it is not followed: {fault}")
    return records


async def shut_out_again(
    store: IdentityStore, *, since: int, export: list[AuditRecord] | None, revokes_tokens: bool, by: Actor
) -> list[RestoredStep]:
    """End all sessions, and take away what was taken away since the backup; what was done, and what is left.

    It may be called again: what is done already is no step any more.

    Args:
        since: when the backup was made, ms.
        export: the audit, from `read_export`; None: there is none.
        revokes_tokens: all that there are.

    Raises:
        InvalidOption: the export is that of another store; nothing was changed.
    """
    if export is not None:
        await _check_origin(store, export)
    by = replace(by, note=by.note or "after a restored backup")
    steps = await _end_sessions(store, by)
    if export is None:
        what = "without an export it is not known who was disabled and what was taken away: look through"
        steps.append(RestoredStep(what, "users, roles, tenants", is_done=False))
    else:
        found = _restrictions(record for record in export if record.at >= since - _MARGIN_MS)
        steps += await _follow(store, found, by)
        there = (await _names(store)).keys() | {token.id for token in await store.credentials.tokens()}
        steps += [step for each, step in found.others.items() if each not in there]
    steps += await _see_to_tokens(store, revokes=revokes_tokens, by=by)
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
        raise InvalidOption("the export is not of this store's audit: its first entries differ; nothing was changed")


async def _end_sessions(store: IdentityStore, by: Actor) -> list[RestoredStep]:
    steps: list[RestoredStep] = []
    for user_id, name in (await _names(store)).items():
        for session in await store.credentials.sessions(user_id):
            await store.credentials.end_session(session.id, by=by)
            steps.append(RestoredStep("a session has ended", name, is_done=True))
    return steps


async def _follow(store: IdentityStore, found: _Restrictions, by: Actor) -> list[RestoredStep]:
    steps: list[RestoredStep] = []
    for token in await store.credentials.tokens():
        if token.id in found.tokens:
            await store.credentials.revoke_token(token.id, by=by)
            steps.append(RestoredStep("a token is revoked", f"{token.id} ({token.name})", is_done=True))
    people = found.erased | found.disabled.keys() | found.passwords.keys() | {user for user, _ in found.roles}
    for user_id in sorted(people):
        account = await store.accounts.account(user_id)
        if account is not None:
            try:
                steps += await _restrict(store, account, found, by)
            except IdentityConflict as error:
                # The last admin may have become one after the backup was made, or before another one did.
                steps.append(RestoredStep(f"is not done: {error}", account.user.name, is_done=False))
    for tenant in await store.accounts.tenants(EVERYTHING_OF_ALL):
        if tenant.name in found.removed_tenants:
            await store.accounts.remove_tenant(tenant.name, by=by)
            steps.append(RestoredStep("the tenant is removed", tenant.name, is_done=True))
        elif found.tenants.get(tenant.name) and tenant.disabled is None:
            await store.accounts.change_tenant(tenant.name, by=by, is_disabled=True)
            steps.append(RestoredStep("the tenant is disabled", tenant.name, is_done=True))
    return steps


async def _restrict(
    store: IdentityStore, account: UserAccount, found: _Restrictions, by: Actor
) -> list[RestoredStep]:
    user, steps = account.user, list[RestoredStep]()
    if user.id in found.erased:
        await store.accounts.erase_user(user.id, by=by)
        return [RestoredStep("the user is erased", user.id, is_done=True)]
    if found.disabled.get(user.id) and user.disabled is None:
        await store.accounts.change_user(user.id, UserChange(is_disabled=True), by=by)
        steps.append(RestoredStep("the user is disabled", user.name, is_done=True))
    if user.password_changed is not None and user.password_changed < found.passwords.get(user.id, 0):
        await store.accounts.change_user(user.id, UserChange(password_hash=""), by=by)
        steps.append(RestoredStep("the old password opens nothing any more", user.name, is_done=True))
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
            steps.append(RestoredStep(f"is not {what} any more", user.name, is_done=True))
        elif after != has and has.role.includes(after.role) and (after.tasks == has.tasks or "*" in has.tasks):
            await store.accounts.set_membership(user.id, after, by=by)
            steps.append(RestoredStep(f"is {after.role} and not {what}", user.name, is_done=True))
        elif after != has:
            was = f"{after.role} with {', '.join(after.tasks)}"
            steps.append(RestoredStep(f"is {what}, and was {was}", user.name, is_done=False))
    return steps


async def _see_to_tokens(store: IdentityStore, *, revokes: bool, by: Actor) -> list[RestoredStep]:
    steps: list[RestoredStep] = []
    names = await _names(store)
    for token in await store.credentials.tokens():
        whose = f"{token.id} ({token.name}) of {names.get(token.user_id, token.user_id)}"
        if revokes:
            await store.credentials.revoke_token(token.id, by=by)
        steps.append(
            RestoredStep(
                "a token is revoked" if revokes else "the token is good: is it to be?", whose, is_done=revokes
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


def _restrictions(records: Iterable[AuditRecord]) -> _Restrictions:
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
                what = f"the {record.kind} was added since: add it again, if it is wanted"
                found.others[record.subject] = RestoredStep(what, str(after.get("name", "")), is_done=False)
            case _:
                continue
    return found


def _record(facts: Mapping[str, Any]) -> AuditRecord:
    """The reverse of `exported`."""
    plain = dict(facts)
    for name in _BYTES:
        plain[name] = None if plain[name] is None else bytes.fromhex(plain[name])
    for name in ("who", "what"):
        plain[name] = None if plain[name] is None else plain[name].encode()
    record = AuditRecord(**plain)
    if record.position is None or record.hash is None:
        raise ValueError("it is not sealed")
    return record
