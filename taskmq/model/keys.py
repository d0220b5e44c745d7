"""Keys under which a state keeps what is derived from jobs, and derived job ids. Pure.

Each key begins with the tenant of its job, `@acme:`. Without a tenant it has no prefix, as before there were tenants.
So a key that a user chooses, such as `order:17`, is a different key for every tenant. Names that an app's code
chooses for all jobs, such as an unkeyed limit or a lock, are shared by its tenants.

Callers choose ids of jobs, and know the facts that other ids are derived from: the name of a schedule and its next
instant, the source of an event and its number. Therefore all derived ids begin with `taskmq:` after their tenant.
`check_chosen_id` refuses that prefix wherever a caller chooses an id, so no chosen id equals a derived one.
"""

import re
from typing import Final

from taskmq.errors import InvalidOption

# Browsers and proxies resolve them before a server sees the path.
_DOTS: Final = frozenset({".", ".."})
_SCHEDULED: Final = "6f1d2c3a-8d52-5b0e-9a44-1f8d3f5e2b77"
_REACTED: Final = "b4c1b7e0-2f0e-5a36-9d0b-6f3f5b1d7a10"
_RUNS: Final = "0c6f4f0e-3a55-5d0b-8f1e-6b0f6b7c9a21"
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DERIVED: Final = "taskmq:"
_LONGEST: Final = 512
_MEMBERS: Final = "members:"
_LAST_CHARACTER: Final = "\U0010ffff"
QUEUE_PAUSES: Final = "/queues"
"""The scope of definitions that records paused queues; no app may have this name."""


def tenant_key(tenant: str | None, key: str) -> str:
    """Return a key within a tenant; keys of different tenants never collide, whatever their names."""
    if tenant is None:
        return key
    return f"@{tenant.replace('%', '%25').replace(':', '%3A')}:{key}"


def text_after(prefix: str) -> str:
    """Return the first text after all that begin with `prefix`, in code point order; "" if there is none."""
    rest = prefix.rstrip(_LAST_CHARACTER)
    if not rest:
        return ""
    code = ord(rest[-1]) + 1
    # Texts that can be stored contain no surrogates.
    return rest[:-1] + chr(0xE000 if 0xD800 <= code < 0xE000 else code)


def split_tenant_key(key: str) -> tuple[str, str]:
    """Return the tenant, or "", and the key that were passed to `tenant_key`."""
    tenant, parted, rest = key.removeprefix("@").partition(":")
    if not key.startswith("@") or not parted:
        return "", key
    return tenant.replace("%3A", ":").replace("%25", "%"), rest


def once_key(scope: str, key: str, *, tenant: str | None) -> str:
    """Return the key of work that runs once; `scope` is its task's name, or a name that several tasks share."""
    name = tenant_key(tenant, f"once:{scope}:{key}")
    if len(name.encode(errors="replace")) <= _LONGEST:
        return name
    import hashlib

    digest = hashlib.sha256(name.encode(errors="backslashreplace"), usedforsecurity=False).hexdigest()
    # The tenant has to stay readable, so that its keys can be erased.
    return tenant_key(tenant, f"once:{digest}")


def is_once_key(key: str) -> bool:
    """Whether `once_key` returned this key."""
    return split_tenant_key(key)[1].startswith("once:")


def line_key(queue: str, key: str, *, tenant: str | None) -> str:
    """Return the name of the line of a tenant's stored jobs with one order key."""
    return tenant_key(tenant, f"line:{queue}:{key}")


def is_line_key(key: str) -> bool:
    """Whether `line_key` returned this key."""
    return split_tenant_key(key)[1].startswith("line:")


def unique_key(task: str, key: str, *, tenant: str | None) -> str:
    """Return the key of a job that is the only one of its task and key while it waits or runs."""
    return tenant_key(tenant, f"unique:{task}:{key}")


def replaced_key(job_id: str) -> str:
    """Return the key of the note that a unique job was replaced, and by which job."""
    return f"replaced:{job_id}"


def limit_key(name: str, key: str | None, *, tenant: str | None) -> str:
    """Return the key of a limit, or of one value of its key; tenants share the limit itself, but not its values."""
    return name if key is None else tenant_key(tenant, f"{name}:{key}")


def rate_key(key: str) -> str:
    """Return the key of the start rate of a limit."""
    return f"rate:{key}"


def places_key(key: str) -> str:
    """Return the key of the concurrency of a limit."""
    return f"places:{key}"


def lock_key(name: str) -> str:
    """Return the key of a lock that an app's code names."""
    return f"lock:{name}"


def worker_key(owner: str) -> str:
    """Return the key of the note that a worker with claims is alive."""
    return f"worker:{owner}"


def long_run_key(job_id: str, chance: str) -> str:
    """Return the key of the lease that replaces the delivery of a long run."""
    return f"handover:{job_id}:{chance}"


def partition_key(partition: int) -> str:
    """Return the key of a partition's lease; its token is the epoch of the holder."""
    return f"partition:{partition}"


def watermark_key(process: str) -> str:
    """Return the key of a process's note of what the job store confirmed."""
    return f"mark:{process}"


def members_prefix(group: str) -> str:
    """Return the common prefix of the keys of a group's members, which no other key has."""
    return f"{_MEMBERS}{group}:"


def member_key(group: str, member: str) -> str:
    """Return the key of a member's lease.

    Args:
        group: without a colon.
    """
    return members_prefix(group) + member


def group_of(key: str) -> str | None:
    """Return the group of a member's key; None for any other key."""
    if not key.startswith(_MEMBERS):
        return None
    group, parted, _ = key.removeprefix(_MEMBERS).partition(":")
    return group if parted else None


def schedule_record_key(app: str, schedule: str) -> str:
    """Return the key of the record that replicas share about one schedule."""
    return f"{app}/{schedule}"


def check_chosen_id(job_id: str, *, tenant: str | None, what: str) -> str:
    """Return `job_id` if a caller may choose it for a job of that tenant.

    Args:
        what: a name of the value, for the message.

    Raises:
        InvalidOption: it begins like a derived id; or, without a tenant, like the id of some tenant.
    """
    if job_id.startswith(_DERIVED):
        raise InvalidOption(
            f"{what}: {job_id[:80]!r} begins with {_DERIVED!r}, which is reserved for ids of schedules, events "
            "and reactions: choose another one"
        )
    owner, own = ("", job_id) if tenant else split_tenant_key(job_id)
    if own != job_id:
        raise InvalidOption(
            f"{what}: {job_id[:80]!r} names a job of tenant {owner[:80]!r}, but this job has no tenant: "
            f"pass tenant={owner[:80]!r} and {what}={own[:80]!r}, or choose another one"
        )
    return job_id


def check_reachable(name: str, *, what: str, reserved: frozenset[str] = frozenset()) -> str:
    """Return the name of a thing that has its own path in the HTTP API, if a request can reach it.

    Args:
        what: the kind of thing, for the message.
        reserved: names of other paths there.

    Raises:
        InvalidOption: no request could reach the thing by that name.
    """
    if name in _DOTS or name in reserved:
        raise InvalidOption(f"{what} {name!r}: has a special meaning in paths; choose another one")
    return name


def is_derived_id(job_id: str) -> bool:
    """Return whether an id, without its tenant, is a derived one."""
    return job_id.startswith(_DERIVED)


def scheduled_job_id(app: str, schedule: str, instant: int, run: str = "") -> str:
    """Return the id of a schedule's job for a nominal instant (ms); every replica derives the same one."""
    return f"taskmq:schedule:{_uuid(_SCHEDULED, app, schedule, str(instant), run)}"


def outside_job_id(source: str, event: str) -> str:
    """Return the id of the job that an event from outside starts.

    Args:
        source: without a colon.
    """
    return f"taskmq:event:{source}:{event}"


def reaction_record_key(app: str, reaction: str) -> str:
    """Return the key of the record of a reaction's events, next to those of the app's schedules."""
    return f"{app}//{reaction}"


def reaction_job_id(app: str, reaction: str, event: str) -> str:
    """Return the id of the job that follows an event; every process derives the same, however often it sees it."""
    return f"taskmq:reaction:{_uuid(_REACTED, app, reaction, event)}"


def arrival_key(app: str, reaction: str, condition: int, arrival: str) -> str:
    """Return the key of the claim on a file that arrived, for the condition of that number."""
    return f"arrived:{reaction_record_key(app, reaction)}:{condition}:{arrival}"


def run_id_of(name: str) -> str:
    """Return the store's id of a run: its name without the tenant, or one derived from a name that is no UUID."""
    tenant, own = split_tenant_key(name)
    return own if _UUID.fullmatch(own) else _uuid(_RUNS, tenant, own)


def _uuid(namespace: str, *facts: str) -> str:
    # Imported here: it costs as much as this package, and processes that only publish do not need it.
    from uuid import UUID, uuid5

    # Separated, so that two facts never read like two others.
    return str(uuid5(UUID(namespace), "\0".join(facts)))
