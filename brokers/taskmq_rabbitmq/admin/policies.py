"""Policies and permissions of taskmq's queues for an operator. Pure.

Arguments define a queue and cannot be changed; policies tune it and can. The available keys depend on RabbitMQ's
version. Only one policy applies to a queue, so each queue gets one with all keys.
"""

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, assert_never

from taskmq.contracts.topology_plan import Instruction, QueueTuning, Role
from taskmq.errors import InvalidOption, UnsupportedFeature
from taskmq.model.topology import (
    PARKING,
    TOPIC_QUEUE,
    UNROUTABLE,
    WorkQueue,
    dead_letter_queue,
    is_jobs_queue,
    node_queue,
)
from taskmq_rabbitmq.admin.http_api import segment
from taskmq_rabbitmq.model import delay_ladder as delay
from taskmq_rabbitmq.model.consumer_timeout import DEFAULT_SECONDS, consume_arguments
from taskmq_rabbitmq.model.entities import EVENTS, LISTENER
from taskmq_rabbitmq.model.routes import ARCHIVE, DEAD_LETTERS, INVITATIONS, REPORTS, WORK

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
# Levels of the delay ladder, the queues of kinds of processes, and everything that all queues share.
_LEVELS: Final = r"taskmq\.delay\.v2\.l[0-9]{2}"
_REPORTS: Final = r"taskmq\.reports\..*"
_TOPICS: Final = f"{re.escape(TOPIC_QUEUE)}.*"
_SHARED: Final = r"taskmq\..*"
_LISTENERS: Final = f"{re.escape(LISTENER)}.*"
_NODES: Final = f"{re.escape(node_queue(''))}.*"


def parse_version(text: str) -> tuple[int, ...]:
    """Parse `4.3` or `4.3.6` into numbers.

    Raises:
        InvalidOption: the text is not a version.
    """
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,5}){1,3}", text):
        raise InvalidOption(f"version {text!r}: must be a version such as 3.10 or 4.3.6")
    return tuple(map(int, text.split(".")))


def exactly(names: Iterable[str]) -> str:
    """Return a pattern that matches exactly these names."""
    return f"^({'|'.join(map(re.escape, names))})$"


def policies(tuning: Sequence[QueueTuning], version: tuple[int, ...], *, vhost: str) -> list[Instruction]:
    """Return the policies of the queues for this version; none if the broker's defaults are right.

    Raises:
        InvalidOption: `max_length` without a queue that has a limit.
        UnsupportedFeature: `return_delay` before 4.3.
    """
    if any(each.return_delay for each in tuning) and version < _DELAYED_RETRY:
        raise UnsupportedFeature("only RabbitMQ 4.3 and later can delay requeued messages; omit the delay")
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
    """Return the instruction that sets a policy for queues."""
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
    """Return the minimal permissions that `user` needs for the role.

    Each role except the operator's connects with `?declare=off`. Only the operator's may write to the default
    exchange, which routes to every queue of the virtual host.

    A permission to write to a queue's name is listed because RabbitMQ 4.3 requires some permission on a queue before
    it reports whether the queue exists. Alone it does not allow publishing, which needs an exchange. Together with
    read access to an exchange it allows to bind the queue there. A scheduler has both, and could start no task that
    way which its invitations could not start.

    Raises:
        InvalidOption: as `delivery_binding`.
    """
    configure, write, read = _rights(role, list(queues))
    return Instruction(
        about=role,
        note=_note(role, user),
        shell=shlex.join(("rabbitmqctl", "set_permissions", "-p", vhost, "--", user, configure, write, read)),
        request={
            "method": "PUT",
            "path": f"/api/permissions/{segment(vhost)}/{segment(user)}",
            "body": {"configure": configure, "write": write, "read": read},
        },
    )


def _rights(role: Role, queues: Sequence[WorkQueue]) -> tuple[str, str, str]:
    """Return the patterns of the role's configure, write and read permissions."""
    physical = [name for queue in queues for name in queue.physical]
    jobs = [name for name in physical if not is_jobs_queue(name)]
    letters = [dead_letter_queue(queue.name) for queue in queues]
    # Queues of host nodes, whose names are unknown to apps.
    nodes = [_NODES] if any(queue.placed for queue in queues) else []
    match role:
        case "producer":
            return _NOTHING, _any_of([WORK, delay.ENTER, *jobs]), _NOTHING
        case "worker":
            publishes = [WORK, delay.ENTER, DEAD_LETTERS, ARCHIVE, REPORTS, EVENTS]
            return (
                _any_of([], _LISTENERS),
                _any_of(publishes, _LISTENERS),
                _any_of([*physical, *letters, EVENTS], _LISTENERS, *nodes),
            )
        case "beat":
            return (
                _any_of([], _TOPICS),
                _any_of([WORK, delay.ENTER, DEAD_LETTERS, *jobs], _TOPICS),
                _any_of([], _TOPICS),
            )
        case "scheduler":
            return (
                _any_of([], _REPORTS, _LISTENERS),
                _any_of([INVITATIONS, DEAD_LETTERS, EVENTS, *physical], _REPORTS, _LISTENERS, *nodes),
                _any_of([REPORTS, DEAD_LETTERS, EVENTS], _REPORTS, _LISTENERS),
            )
        case "server":
            # A server looks for lanes of earlier, larger descriptions of a queue.
            lanes = [rf"{re.escape(queue.name)}\.(lane[0-9]{{2}}|p\.low)" for queue in queues]
            return (
                _any_of([], _LISTENERS),
                _any_of([WORK, delay.ENTER, EVENTS], _LISTENERS, _LEVELS),
                _any_of([*physical, *letters, PARKING, UNROUTABLE, EVENTS], *lanes, _LISTENERS),
            )
        case "operator":
            everything = _any_of([WORK, *physical, *letters], _SHARED)
            # Queues with a limit have an entrance that dead-letters through it, and `migrate` moves messages through
            # it.
            return everything, _any_of([_DEFAULT_EXCHANGE, WORK, *physical, *letters], _SHARED), everything
        case _:
            assert_never(role)


def _note(role: Role, user: str) -> str:
    if role == "operator":
        tags = f"rabbitmqctl set_user_tags {shlex.quote(user)} monitoring policymaker"
        return f"for `migrate`, and for everything that `plan` and `diff` can see: {tags}"
    if role == "beat":
        return "with ?declare=off in the URL; a reaction to messages takes the right to read their exchange, too"
    return "with ?declare=off in the URL"


def _any_of(names: Iterable[str], *patterns: str) -> str:
    return f"^({'|'.join((*map(re.escape, names), *patterns))})$"


def _keys(tuning: QueueTuning, version: tuple[int, ...]) -> dict[str, object]:
    keys: dict[str, object] = {}
    if _TIMEOUT_BY_POLICY <= version < _TIMEOUT_BY_CONSUMER and _is_long(tuning):
        keys["consumer-timeout"] = _timeout(tuning.longest)
    # Without the entrance of limited queues, a full queue would block all delayed messages.
    if tuning.max_length is not None and tuning.queue.is_limited:
        keys |= {"max-length": tuning.max_length, "overflow": "reject-publish"}
    if tuning.return_delay is not None and tuning.queue.kind == "quorum":
        pause = round(tuning.return_delay * 1000)
        keys |= {"delayed-retry-type": "returned", "delayed-retry-min": pause, "delayed-retry-max": pause}
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
    # A message that waits behind another in a worker's hands counts from its delivery, too.
    return tuning.longest is None or 2 * tuning.longest > DEFAULT_SECONDS


def _timeout(longest: float | None) -> int:
    return consume_arguments(longest, _TIMEOUT_BY_CONSUMER)["x-consumer-timeout"]
