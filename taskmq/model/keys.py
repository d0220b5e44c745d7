"""Under which names a state keeps what is derived from jobs, and ids that follow from what they are for. Pure.

Each name begins with the tenant whose job it is about, `@acme:`, where it has one; without a tenant it is what it
was before there were any, byte for byte. So a key that a user chooses, such as `order:17`, is another one for every
tenant. What the code of an app names for all its jobs, an unkeyed limit or a lock, is shared by its tenants.
"""

from typing import Final

from taskmq.errors import InvalidOption

__all__ = [
    "arrival_key",
    "check_reachable",
    "flow_end_id",
    "flow_job_id",
    "group_of",
    "limit_key",
    "lock_key",
    "long_run_key",
    "member_key",
    "members_prefix",
    "once_key",
    "places_key",
    "rate_key",
    "reaction_job_id",
    "reaction_record_key",
    "replaced_key",
    "schedule_record_key",
    "scheduled_job_id",
    "slot_key",
    "split_tenant_key",
    "tenant_key",
    "tenant_prefix",
    "text_after",
    "unique_key",
    "watermark_key",
    "worker_key",
]

# Browsers and proxies resolve them before a server sees the path.
_DOTS: Final = frozenset({".", ".."})
_SCHEDULED: Final = "6f1d2c3a-8d52-5b0e-9a44-1f8d3f5e2b77"
_REACTED: Final = "b4c1b7e0-2f0e-5a36-9d0b-6f3f5b1d7a10"
_LONGEST: Final = 512
_MEMBERS: Final = "members:"
_LAST_CHARACTER: Final = "\U0010ffff"
QUEUE_PAUSES: Final = "/queues"
"""Which queues are paused: a scope of definitions that no app is called."""


def tenant_key(tenant: str | None, key: str) -> str:
    """The key as one of the tenant's; no two tenants have one in common, whatever they are called."""
    if tenant is None:
        return key
    return f"@{tenant.replace('%', '%25').replace(':', '%3A')}:{key}"


def text_after(prefix: str) -> str:
    """The first text after all that begin with `prefix`, in the order of code points; "" where there is none."""
    rest = prefix.rstrip(_LAST_CHARACTER)
    if not rest:
        return ""
    code = ord(rest[-1]) + 1
    # No text that can be stored has surrogates.
    return rest[:-1] + chr(0xE000 if 0xD800 <= code < 0xE000 else code)


def split_tenant_key(key: str) -> tuple[str, str]:
    """The tenant, "" for none, and the key that `tenant_key` was made of."""
    tenant, parted, rest = key.removeprefix("@").partition(":")
    if not key.startswith("@") or not parted:
        return "", key
    return tenant.replace("%3A", ":").replace("%25", "%"), rest


def tenant_prefix(key: str) -> str:
    """What all keys of the tenant whose key it is begin with; "" for none."""
    return tenant_key(split_tenant_key(key)[0] or None, "")


def once_key(scope: str, key: str, *, tenant: str | None) -> str:
    """Of work that is done once: `scope` is its task's name, or what several tasks have in common."""
    name = tenant_key(tenant, f"once:{scope}:{key}")
    if len(name.encode(errors="replace")) <= _LONGEST:
        return name
    import hashlib

    return hashlib.sha256(name.encode(errors="backslashreplace"), usedforsecurity=False).hexdigest()


def unique_key(task: str, key: str, *, tenant: str | None) -> str:
    """Of a job that is the only one of its task and key while it waits or runs."""
    return tenant_key(tenant, f"unique:{task}:{key}")


def replaced_key(job_id: str) -> str:
    """The note that a unique job was replaced, and by which."""
    return f"replaced:{job_id}"


def limit_key(name: str, key: str | None, *, tenant: str | None) -> str:
    """Of a limit, or of one value of its key; the limit itself is shared by tenants, its values are not."""
    return name if key is None else tenant_key(tenant, f"{name}:{key}")


def rate_key(key: str) -> str:
    """How often may start what has the limit of that key."""
    return f"rate:{key}"


def places_key(key: str) -> str:
    """How many may run of what has the limit of that key."""
    return f"places:{key}"


def lock_key(name: str) -> str:
    """Of a lock that the code of an app names."""
    return f"lock:{name}"


def worker_key(owner: str) -> str:
    """The note that the worker which owns claims is alive."""
    return f"worker:{owner}"


def long_run_key(job_id: str, chance: str) -> str:
    """The lease that replaces the delivery of a long run."""
    return f"handover:{job_id}:{chance}"


def slot_key(slot: int) -> str:
    """The lease of a slot of the job store; its token is the epoch of its holder."""
    return f"slot:{slot}"


def watermark_key(process: str) -> str:
    """The note of what a process knows that the job store has confirmed."""
    return f"mark:{process}"


def members_prefix(group: str) -> str:
    """What the keys of a group's members begin with, and no other key."""
    return f"{_MEMBERS}{group}:"


def member_key(group: str, member: str) -> str:
    """The lease of a member.

    Args:
        group: without a colon.
    """
    return members_prefix(group) + member


def group_of(key: str) -> str | None:
    """The group of whose members the key is one's; None for any other key."""
    if not key.startswith(_MEMBERS):
        return None
    group, parted, _ = key.removeprefix(_MEMBERS).partition(":")
    return group if parted else None


def schedule_record_key(app: str, schedule: str) -> str:
    """Of what replicas share about one schedule."""
    return f"{app}/{schedule}"


def scheduled_job_id(app: str, schedule: str, instant: int, run: str = "") -> str:
    """The id of the job that a schedule emits for its nominal instant (ms): the same from every replica."""
    name = f"{schedule_record_key(app, schedule)}@{instant}"
    return _uuid(_SCHEDULED, f"{name}#{run}" if run else name)


def reaction_record_key(app: str, reaction: str) -> str:
    """Of what has come for a reaction; beside those of the app's schedules."""
    return f"{app}//{reaction}"


def reaction_job_id(app: str, reaction: str, event: str) -> str:
    """The id of the job that follows an event: the same in every process, however often it is seen."""
    return _uuid(_REACTED, f"{reaction_record_key(app, reaction)}@{event}")


def arrival_key(app: str, reaction: str, condition: int, arrival: str) -> str:
    """Of the claim of a file that has arrived, for the condition of that number."""
    return f"arrived:{reaction_record_key(app, reaction)}:{condition}:{arrival}"


def flow_job_id(flow_id: str, node: str, run: int) -> str:
    """The id of the job of a workflow's step; `run` counts how often the workflow was driven anew."""
    return f"{flow_id}.{node}~{run}" if run else f"{flow_id}.{node}"


def flow_end_id(flow_id: str, run: int) -> str:
    """The end of a workflow, among the results."""
    return f"{flow_id}.end~{run}"


def _uuid(namespace: str, name: str) -> str:
    # Not for those who only send: it costs as much as this package.
    from uuid import UUID, uuid5

    return str(uuid5(UUID(namespace), name))


def check_reachable(name: str, *, what: str, reserved: frozenset[str] = frozenset()) -> str:
    """Return the name of a thing that has its own path in the HTTP API.

    Args:
        what: the kind of thing, for the message.
        reserved: names of other paths there.

    Raises:
        InvalidOption: no request could reach the thing by that name.
    """
    if name in _DOTS or name in reserved:
        raise InvalidOption(f"{what} {name!r}: in a path that name stands for something else; choose another one")
    return name
