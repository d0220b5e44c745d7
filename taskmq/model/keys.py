"""Under which names a state keeps what is derived from jobs, and ids that follow from what they are for. Pure.

Each name begins with the tenant whose job it is about, `@acme:`, where it has one; without a tenant it is what it
was before there were any, byte for byte. So a key that a user chooses, such as `order:17`, is another one for every
tenant. What the code of an app names for all its jobs, an unkeyed limit or a lock, is shared by its tenants.

A caller chooses ids of jobs, and knows the facts that others follow from: the name of a schedule and its next
instant, the source of an event and its number. So all ids that are derived begin with `taskmq:`, behind their tenant,
and `check_chosen_id` refuses what begins so wherever an id is chosen: no chosen id is ever one that is derived.
"""

from typing import Final

from taskmq.errors import InvalidOption

__all__ = [
    "arrival_key",
    "check_chosen_id",
    "check_reachable",
    "flow_end_id",
    "flow_job_id",
    "group_of",
    "is_derived_id",
    "limit_key",
    "lock_key",
    "long_run_key",
    "member_key",
    "members_prefix",
    "once_key",
    "outside_job_id",
    "partition_key",
    "places_key",
    "rate_key",
    "reaction_job_id",
    "reaction_record_key",
    "replaced_key",
    "schedule_record_key",
    "scheduled_job_id",
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
_DERIVED: Final = "taskmq:"
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


def partition_key(partition: int) -> str:
    """The lease of a partition of the job store; its token is the epoch of its holder."""
    return f"partition:{partition}"


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


def check_chosen_id(job_id: str, *, tenant: str | None, what: str) -> str:
    """`job_id` itself, which a caller has chosen for a job of that tenant.

    Args:
        what: it is, for the message.

    Raises:
        InvalidOption: it begins as derived ids do; or, without a tenant, as the ids of some tenant do.
    """
    if job_id.startswith(_DERIVED):
        raise InvalidOption(
            f"{what}: {job_id[:80]!r} begins with {_DERIVED!r}, as do the ids that follow from schedules, events, "
            "reactions and workflows, and no caller gives: choose another one"
        )
    owner, own = ("", job_id) if tenant else split_tenant_key(job_id)
    if own != job_id:
        raise InvalidOption(
            f"{what}: {job_id[:80]!r} is what a job of tenant {owner[:80]!r} is called, and this one has no tenant: "
            f"say tenant={owner[:80]!r}, {what}={own[:80]!r}, or choose another one"
        )
    return job_id


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


def is_derived_id(job_id: str) -> bool:
    """Whether it is one that follows from what its job is for; without its tenant."""
    return job_id.startswith(_DERIVED)


def scheduled_job_id(app: str, schedule: str, instant: int, run: str = "") -> str:
    """The id of the job that a schedule emits for its nominal instant (ms): the same from every replica."""
    return f"taskmq:schedule:{_uuid(_SCHEDULED, app, schedule, str(instant), run)}"


def outside_job_id(source: str, event: str) -> str:
    """The id of the job that an event from outside starts.

    Args:
        source: without a colon.
    """
    return f"taskmq:event:{source}:{event}"


def reaction_record_key(app: str, reaction: str) -> str:
    """Of what has come for a reaction; beside those of the app's schedules."""
    return f"{app}//{reaction}"


def reaction_job_id(app: str, reaction: str, event: str) -> str:
    """The id of the job that follows an event: the same in every process, however often it is seen."""
    return f"taskmq:reaction:{_uuid(_REACTED, app, reaction, event)}"


def arrival_key(app: str, reaction: str, condition: int, arrival: str) -> str:
    """Of the claim of a file that has arrived, for the condition of that number."""
    return f"arrived:{reaction_record_key(app, reaction)}:{condition}:{arrival}"


def flow_job_id(flow_id: str, node: str, run: int) -> str:
    """The id of the job of a workflow's step; `run` counts how often the workflow was driven anew.

    Args:
        flow_id: without a tilde.
    """
    tenant, own = split_tenant_key(flow_id)
    again = f"~{run}" if run else ""
    return tenant_key(tenant or None, f"taskmq:step:{own}~{node}{again}")


def flow_end_id(flow_id: str, run: int) -> str:
    """The end of a workflow, among the results."""
    tenant, own = split_tenant_key(flow_id)
    return tenant_key(tenant or None, f"taskmq:flow:{own}~{run}")


def _uuid(namespace: str, *facts: str) -> str:
    # Not for those who only send: it costs as much as this package.
    from uuid import UUID, uuid5

    # Apart, so that two facts never read as two others do.
    return str(uuid5(UUID(namespace), "\0".join(facts)))
