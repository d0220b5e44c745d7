"""Policies and permissions for taskmq's queues, as an operator sets them. Pure.

Arguments make a queue what it is and cannot be changed; policies tune it and can. Which keys there are depends on
RabbitMQ's version. Only one policy applies to a queue, so each queue gets one with everything in it.
"""

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, assert_never

from taskmq.contracts.topology_plan import Instruction, QueueTuning, Role
from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.model.topology import PARKING, UNROUTABLE, WorkQueue, dead_letter_queue
from taskmq_rabbitmq.admin.http_api import segment
from taskmq_rabbitmq.model.consumer_timeout import DEFAULT_SECONDS, consume_arguments
from taskmq_rabbitmq.model.entities import EVENTS, LISTENER, Queue, work_queue

__all__ = ["exactly", "parse_version", "permissions", "policies", "set_policy"]

_PRIORITY: Final = 10
_TIMEOUT_BY_POLICY: Final = (3, 12)
_TIMEOUT_BY_CONSUMER: Final = (4, 3)
_DELAYED_RETRY: Final = (4, 3)
_ONE_POLICY: Final = "only the policy with the highest priority applies to a queue: add the keys of any other here"
_NO_ENTRANCE: Final = (
    "no queue of this app has a limit that a policy could lower: describe those that are to have one with "
    "WorkQueue(..., max_length=N), which also keeps delayed messages from being stopped by a full queue"
)
_SET_POLICY: Final = ("rabbitmqctl", "set_policy", "--apply-to", "queues")
_NOTHING: Final = "^$"
_DEFAULT_EXCHANGE: Final = "amq.default"
# All of the delay ladder; and everything that is shared by all queues.
_LADDER: Final = r"taskmq\.delay\..*"
_SHARED: Final = r"taskmq\..*"
_LISTENERS: Final = f"{re.escape(LISTENER)}.*"


def parse_version(text: str) -> tuple[int, ...]:
    """`4.3` or `4.3.6` as numbers.

    Raises:
        InvalidOption: it is none.
    """
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,5}){1,3}", text):
        raise InvalidOption(f"version {text!r}: it looks like 3.10 or 4.3.6")
    return tuple(map(int, text.split(".")))


def exactly(names: Iterable[str]) -> str:
    """A pattern that fits these names and no other."""
    return f"^({'|'.join(map(re.escape, names))})$"


def policies(tuning: Sequence[QueueTuning], version: tuple[int, ...], *, vhost: str) -> list[Instruction]:
    """What tunes the queues on this version; nothing where the broker's defaults are right.

    Raises:
        InvalidOption: `max_length` where no queue has a limit.
        UnsupportedFeature: `return_delay` before 4.3.
    """
    if any(each.return_delay for each in tuning) and version < _DELAYED_RETRY:
        raise UnsupportedFeature("only RabbitMQ 4.3 and later hold returned messages back; leave the delay out")
    if tuning and all(each.max_length for each in tuning) and not any(each.queue.is_limited for each in tuning):
        raise InvalidOption(_NO_ENTRANCE)
    instructions = [
        set_policy(
            f"taskmq.{each.queue.name}",
            exactly(each.queue.physical),
            keys,
            vhost=vhost,
            priority=_PRIORITY,
            note="; ".join((*_reasons(keys), _ONE_POLICY)),
        )
        for each in tuning
        if (keys := _keys(each, version))
    ]
    return [*instructions, *_node_settings(tuning, version)]


def set_policy(
    name: str, pattern: str, keys: Mapping[str, object], *, vhost: str, priority: int, note: str = ""
) -> Instruction:
    """How a policy for queues is set."""
    definition = json.dumps(keys)
    return Instruction(
        about=name,
        note=note,
        shell=shlex.join((*_SET_POLICY, "-p", vhost, "--priority", str(priority), "--", name, pattern, definition)),
        request={
            "method": "PUT",
            "path": f"/api/policies/{segment(vhost)}/{segment(name)}",
            "body": {"pattern": pattern, "definition": dict(keys), "priority": priority, "apply-to": "queues"},
        },
    )


def permissions(role: Role, queues: Iterable[WorkQueue], *, vhost: str, user: str) -> Instruction:
    """What `user` has to be allowed.

    A producer sends, at once and later. A worker also takes what is in its queues, gives it a retry or buries it, and
    looks through the dead letters of these queues; it announces events, and hears commands in a queue of its own.
    Both connect with `?declare=off`. An operator also creates and changes all that is taskmq's, and reads the parking
    and unroutable queues.

    A user that may write to the exchange of events may command workers: a producer may not.
    """
    queues = list(queues)
    readable = [name for queue in queues for name in (*queue.physical, dead_letter_queue(queue.name))]
    # Permission to write to a queue is what RabbitMQ 4.3 asks of a user that only wants to know whether it is there.
    declared = [entity.name for queue in queues for entity in work_queue(queue) if isinstance(entity, Queue)]
    known = [*declared, PARKING, UNROUTABLE]
    match role:
        case "producer":
            configure, write, read = _NOTHING, _any_of([_DEFAULT_EXCHANGE, *known], _LADDER), _NOTHING
        case "worker":
            configure = _any_of([], _LISTENERS)
            write = _any_of([_DEFAULT_EXCHANGE, *known, EVENTS], _LADDER, _LISTENERS)
            read = _any_of([*readable, EVENTS], _LISTENERS)
        case "operator":
            configure = read = _any_of(readable, _SHARED)
            write = _any_of([_DEFAULT_EXCHANGE, *readable], _SHARED)
        case _:
            assert_never(role)
    note = (
        "for `migrate`, and for everything that `plan` and `diff` can see: rabbitmqctl set_user_tags "
        f"{shlex.quote(user)} monitoring policymaker"
        if role == "operator"
        else "with ?declare=off in the URL"
    )
    return Instruction(
        about=role,
        note=note,
        shell=shlex.join(("rabbitmqctl", "set_permissions", "-p", vhost, "--", user, configure, write, read)),
        request={
            "method": "PUT",
            "path": f"/api/permissions/{segment(vhost)}/{segment(user)}",
            "body": {"configure": configure, "write": write, "read": read},
        },
    )


def _any_of(names: Iterable[str], *patterns: str) -> str:
    return f"^({'|'.join((*map(re.escape, names), *patterns))})$"


def _keys(tuning: QueueTuning, version: tuple[int, ...]) -> dict[str, object]:
    keys: dict[str, object] = {}
    if _TIMEOUT_BY_POLICY <= version < _TIMEOUT_BY_CONSUMER and _is_long(tuning):
        keys["consumer-timeout"] = _timeout(tuning.longest)
    # Without the entrance that limited queues have, a full queue would stop everybody's delays.
    if tuning.max_length is not None and tuning.queue.is_limited:
        keys |= {"max-length": tuning.max_length, "overflow": "reject-publish"}
    if tuning.return_delay is not None and tuning.queue.kind == "quorum":
        delay = round(tuning.return_delay * 1000)
        keys |= {"delayed-retry-type": "returned", "delayed-retry-min": delay, "delayed-retry-max": delay}
    return keys


def _reasons(keys: Mapping[str, object]) -> Iterable[str]:
    if "consumer-timeout" in keys:
        yield "tasks may run for longer than the broker's 30 minutes allow"
    if "max-length" in keys:
        yield "from that many ready messages on sending fails; the lower of this and the app's limit counts"
    if "delayed-retry-min" in keys:
        yield "what a worker gives back unstarted waits before it comes again; it loses its priority"


def _node_settings(tuning: Sequence[QueueTuning], version: tuple[int, ...]) -> list[Instruction]:
    long = [each for each in tuning if _is_long(each)]
    if not long:
        return []
    names = ", ".join(repr(each.queue.name) for each in long)
    if version >= _TIMEOUT_BY_CONSUMER:
        return [Instruction("consumer timeout", f"nothing to be done for {names}: workers ask for it themselves")]
    if version >= _TIMEOUT_BY_POLICY:
        return []
    milliseconds = max(_timeout(each.longest) for each in long)
    return [
        Instruction(
            about="consumer timeout",
            note=(
                f"tasks of {names} may run for longer than the broker's 30 minutes allow, and this version knows no "
                f"limit by queue: put `consumer_timeout = {milliseconds}` into rabbitmq.conf of every node; the "
                "command lasts until the node restarts"
            ),
            shell=shlex.join(
                ("rabbitmqctl", "eval", f"application:set_env(rabbit, consumer_timeout, {milliseconds}).")
            ),
        )
    ]


def _is_long(tuning: QueueTuning) -> bool:
    # One that waits behind another in a worker's hands counts from its delivery, too.
    return tuning.longest is None or 2 * tuning.longest > DEFAULT_SECONDS


def _timeout(longest: float | None) -> int:
    return consume_arguments(longest, _TIMEOUT_BY_CONSUMER)["x-consumer-timeout"]
