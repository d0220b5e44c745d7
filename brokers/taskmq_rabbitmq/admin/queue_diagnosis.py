"""Findings of `taskmq doctor` about the queues of a RabbitMQ virtual host. Pure: facts in, findings out.

There are three kinds of queues, because a policy has another meaning for each: those in which messages wait (the
levels of the ladder, the entrances of full queues), those that keep letters, and those of work. Policies are judged
by their effect on one queue, operator policies included.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from taskmq.contracts.finding import Finding
from taskmq.contracts.topology_plan import Comparison, TopologyEntry
from taskmq.model.topology import WorkQueue, dead_letter_queue, logical_queue
from taskmq_rabbitmq.admin.inspection import QueueFacts
from taskmq_rabbitmq.model.consumer_timeout import DEFAULT_SECONDS, remedy
from taskmq_rabbitmq.model.deaths import keeps_letters
from taskmq_rabbitmq.model.entities import entrance
from taskmq_rabbitmq.model.routes import DEAD_LETTERS, WORK

_PASSAGES: Final = ("taskmq.delay.", entrance(""))
# Batch size of RabbitMQ's dead-letter worker: with this many messages that cannot leave, no other one moves.
_DEAD_LETTERS_AT_ONCE: Final = 32
_FEW_RETURNS: Final = 20
_MANY_LOOKS: Final = 10_000
_TIMEOUT_BY_CONSUMER: Final = (4, 3)
_TIMEOUT_BY_QUEUE: Final = (3, 12)
_NAMED: Final = 3
_OURS: Final = "taskmq."


def is_passage(queue: str) -> bool:
    """Return whether messages only wait in the physical `queue` until they continue."""
    return queue.startswith(_PASSAGES)


def policy_findings(queues: Iterable[QueueFacts]) -> list[Finding]:
    """Return findings about policies that break delays, dead-lettering, or kept messages, one for each policy."""
    found: dict[tuple[str, str, str, str], list[str]] = {}
    for queue in queues:
        policy = _name_policy(queue)
        for level, finding, advice in _judge(queue):
            found.setdefault((level, policy, finding, advice), []).append(queue.name)
    findings: list[Finding] = []
    for (level, policy, finding, advice), names in found.items():
        findings.append(
            Finding("problem" if level == "problem" else "warning", _several(names), f"{policy}: {finding}", advice)
        )
    return findings


def _judge(queue: QueueFacts) -> Iterator[tuple[str, str, str]]:
    policy = queue.effective_policy
    if is_passage(queue.name):
        yield from _judge_passage(queue, policy)
    elif keeps_letters(queue.name):
        yield from _judge_letters(policy)
    elif queue.arguments.get("x-dead-letter-exchange") == DEAD_LETTERS:
        yield from _judge_work(queue, policy)


def _judge_passage(queue: QueueFacts, policy: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    advice = "keep the policy away from ^taskmq\\. with a narrower pattern"
    own = queue.arguments.get("x-message-ttl")
    if isinstance(ttl := policy.get("message-ttl"), int) and isinstance(own, int) and ttl < own:
        yield "problem", f"message-ttl={ttl}: delays end too early", advice
    if "expires" in policy:
        yield "problem", "expires: the queue is deleted with all that waits in it, since it has no consumer", advice
    if policy.get("overflow", "reject-publish") != "reject-publish":
        yield (
            "problem",
            f"overflow={policy['overflow']}: what leaves the queue is not kept until it has arrived: jobs are lost",
            advice,
        )
    if limits := _limits(policy):
        yield "warning", f"{limits}: delayed jobs and retries are refused when it is reached", advice
    if "x-dead-letter-strategy" not in queue.arguments and policy.get("dead-letter-strategy") != "at-least-once":
        yield "problem", "dead-lettering is at-most-once: jobs are lost", "`taskmq topology diff`"


def _judge_letters(policy: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    advice = "keep the policy away from dead-letter queues with a narrower pattern"
    if "message-ttl" in policy:
        yield "problem", f"message-ttl={policy['message-ttl']}: dead letters vanish after that time", advice
    if "expires" in policy:
        yield "problem", "expires: the queue is deleted with its letters, since it has no consumer", advice
    if limits := _limits(policy):
        if policy.get("overflow", "drop-head") == "reject-publish":
            finding = f"{limits}: when it is reached, jobs cannot die and their workers wait"
            yield "warning", finding, "watch the depth, and empty the queue in time"
        else:
            yield "problem", f"{limits}: the oldest letters vanish when it is reached", "add overflow=reject-publish"
    limit = policy.get("delivery-limit")
    if isinstance(limit, int):
        yield from _judge_limit(limit, _MANY_LOOKS, "a letter vanishes after {} looks at it", advice)


def _judge_work(queue: QueueFacts, policy: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    advice = "take it out of the policy; give jobs `expires` and queues `max_length` in the app"
    if "message-ttl" in policy:
        finding = f"message-ttl={policy['message-ttl']}: jobs that wait longer go to the dead letters, unseen"
        yield "warning", finding, advice
    if "expires" in policy:
        yield "problem", "expires: the queue is deleted with its jobs when no worker runs for that time", advice
    overflow = policy.get("overflow", queue.arguments.get("x-overflow", "reject-publish"))
    limits = _limits(policy)
    if overflow != "reject-publish":
        finding = f"overflow={overflow}: jobs are lost on their way to the dead letters"
        if limits or _own_limit(queue):
            finding = f"overflow={overflow}: when the queue is full, jobs are lost without a word to their sender"
        yield "problem", finding, "say overflow=reject-publish, or take it out of the policy"
    elif limits and not _own_limit(queue):
        finding = (
            f"{limits}: when the queue is full, RabbitMQ keeps what leaves the delay ladder for it, and with 32 "
        )
        yield (
            "problem",
            f"{finding}of those everybody's delays stop",
            "give the queue max_length=N in the app instead",
        )
    limit = policy.get("delivery-limit")
    if isinstance(limit, int) and queue.kind == "quorum":
        text = "a job is given up after {} returns, and crashes of workers are some"
        yield from _judge_limit(limit, _FEW_RETURNS, text, "take it out of the policy: taskmq's own is 100")


def _judge_limit(limit: int, least: int, text: str, advice: str) -> Iterator[tuple[str, str, str]]:
    # A negative limit means none from 4.0 on, and then the queue's own counts; before, it is refused.
    if 0 <= limit < least:
        yield "warning", f"delivery-limit={limit}: {text.format(limit)}", advice


def comparison_findings(comparison: Comparison) -> list[Finding]:
    """Return findings about queues, exchanges and bindings that differ from taskmq's declarations."""
    findings: list[Finding] = [
        Finding("problem", entry.name, f"{entry.kind}: {entry.detail}", entry.remedy)
        for entry in comparison.entries
        if entry.status == "different"
    ]
    missing = [entry for entry in comparison.entries if entry.status == "missing"]
    # On a virtual host without any of them, no app has started yet.
    has_begun = any(_is_there(entry) and _is_of_every_app(entry) for entry in comparison.entries)
    everybodys = [f"{entry.kind} {entry.name}" for entry in missing if has_begun and _is_of_every_app(entry)]
    if everybodys:
        finding = f"missing: {_several(everybodys)}: delays, retries and dead letters of all queues go through it"
        remedy_text = "`taskmq topology apply`; a running worker declares it again within a minute, where it may"
        findings.append(Finding("problem", "topology", finding, remedy_text))
    if others := [f"{entry.kind} {entry.name}" for entry in missing if not (has_begun and _is_of_every_app(entry))]:
        finding = f"missing: {_several(others)}"
        findings.append(Finding("warning", "topology", finding, "start a worker, or `taskmq topology apply`"))
    if extra := [entry.name for entry in comparison.entries if entry.status == "extra" and entry.kind == "queue"]:
        finding = f"left over: {_several(extra)}: the app does not use these any more"
        names = shlex.quote(",".join(extra[:_NAMED]))
        remedy_text = (
            f"`taskmq queue list -Q {names}` shows what is in them; `taskmq topology diff` what to do with each"
        )
        findings.append(Finding("warning", "topology", finding, remedy_text))
    findings += [
        Finding("warning", entry.name, f"binding that is not taskmq's: {entry.detail}", entry.remedy)
        for entry in comparison.entries
        if entry.status == "extra" and entry.kind == "binding"
    ]
    if not findings and comparison.blind is None:
        findings.append(Finding("ok", "topology", "everything is as taskmq declares it"))
    return findings


def _is_there(entry: TopologyEntry) -> bool:
    """Return whether the object was found at the broker. AMQP never shows bindings, but queues and exchanges."""
    return entry.status not in ("missing", "later") and (entry.status, entry.kind) != ("unseen", "binding")


def _is_of_every_app(entry: TopologyEntry) -> bool:
    """Return whether all queues need the object: its name, or the target of a binding, is taskmq's own."""
    name = entry.name.partition(" -> ")[2] or entry.name
    return name == WORK or (name.startswith(_OURS) and not name.startswith(entrance("")))


def timeout_findings(
    loads: Mapping[WorkQueue, float | None],
    queues: Iterable[QueueFacts],
    version: tuple[int, ...] | None,
    *,
    handed_over: float | None = None,
) -> list[Finding]:
    """Return findings about the broker's consumer timeout and the time limits of tasks.

    Args:
        loads: the app's queues, each with the longest time limit of its tasks; None: one has no limit.
        queues: existing queues; empty if they are unknown.
        version: of the node.
        handed_over: seconds after which workers transfer runs to the state, except those of ordered queues; None:
            they do not.
    """
    if version is not None and version >= _TIMEOUT_BY_CONSUMER:
        return []
    by_name = {queue.name: queue for queue in queues}
    found: dict[tuple[str, str, str], list[str]] = {}
    for work, given in loads.items():
        longest = given
        if handed_over is not None and work.ordered is None:
            longest = handed_over if longest is None else min(longest, handed_over)
        limits = [
            limit
            for name in work.physical
            if name in by_name and (limit := _timeout(by_name[name], version)) is not None
        ]
        seconds = min(limits) / 1000 if limits else DEFAULT_SECONDS
        whose = (
            "the queue's"
            if limits
            else "RabbitMQ's default; rabbitmq.conf may say otherwise, which cannot be seen here"
        )
        text = f"consumer timeout {seconds:g} s ({whose})"
        if longest is None:
            finding = f"{text}: tasks without a `timeout` that run longer are started a second time beside themselves"
            advice = f"give the tasks a `timeout`, or {remedy(version)}"
            found.setdefault(("warning", finding, advice), []).append(work.name)
        elif longest > seconds and longest == handed_over:
            finding = f"{text}: workers hand long runs over after {longest:g} s, which is too late"
            advice = f"say consumer_timeout={seconds:g} in the broker's URL, or {remedy(version)}"
            found.setdefault(("problem" if limits else "warning", finding, advice), []).append(work.name)
        elif longest > seconds:
            finding = f"{text}: tasks may take {longest:g} s, and are started a second time beside themselves"
            found.setdefault(("problem" if limits else "warning", finding, remedy(version)), []).append(work.name)
    return [
        Finding("problem" if level == "problem" else "warning", _several(names), finding, advice)
        for (level, finding, advice), names in found.items()
    ]


def _timeout(queue: QueueFacts, version: tuple[int, ...] | None) -> int | None:
    if version is not None and version < _TIMEOUT_BY_QUEUE:
        return None
    values = (queue.effective_policy.get("consumer-timeout"), queue.arguments.get("x-consumer-timeout"))
    return min((value for value in values if isinstance(value, int)), default=None)


def member_findings(queues: Iterable[QueueFacts]) -> list[Finding]:
    """Return findings about quorum queues without some members or a majority, and classic ones whose node is down."""
    stopped: list[str] = []
    weak: list[str] = []
    down: list[str] = []
    for queue in queues:
        if queue.kind == "quorum":
            if queue.members and (not queue.leader or 2 * len(queue.online) <= len(queue.members)):
                stopped.append(queue.name)
            elif len(queue.online) < len(queue.members):
                weak.append(queue.name)
        elif queue.state in ("down", "stopped", "crashed"):
            down.append(queue.name)
    findings: list[Finding] = []
    if stopped:
        finding = "no leader, or no majority of its members is up: nothing goes in or out"
        findings.append(
            Finding("problem", _several(stopped), finding, "bring the nodes back that keep the other members")
        )
    if down:
        findings.append(Finding("problem", _several(down), "the node that keeps it is down", "bring the node back"))
    if weak:
        finding = "a member is down: the next loss may stop it"
        findings.append(Finding("warning", _several(weak), finding, "bring the node back"))
    return findings


def stuck_findings(
    first: Sequence[QueueFacts], second: Sequence[QueueFacts] | None, *, seconds: float
) -> list[Finding]:
    """Return findings about queues whose dead-letter worker holds messages that do not arrive at their target.

    Args:
        first: the first observation.
        second: the second observation; None: there was only one.
        seconds: the time between.
    """
    before = {queue.name: queue.dead_letters for queue in first if queue.dead_letters}
    advice = (
        "see whether the queues that they are for are there and not full (`taskmq topology diff`); RabbitMQ tries "
        "again every three minutes"
    )
    if second is None:
        full = [name for name, count in before.items() if count >= _DEAD_LETTERS_AT_ONCE]
        if not full:
            return []
        finding = f"{_DEAD_LETTERS_AT_ONCE} or more messages are on their way out: too many to be moving"
        return [Finding("warning", _several(full), finding, f"`taskmq doctor --watch 30` tells for sure; {advice}")]
    after = {queue.name: queue.dead_letters for queue in second if queue.dead_letters}
    stuck = [name for name, count in before.items() if after.get(name, 0) >= count]
    if not stuck:
        return [Finding("ok", "dead-lettering", f"nothing was stuck for {seconds:g} s")]
    count = sum(after[name] for name in stuck)
    finding = f"{count} messages are on their way out, and none has arrived within {seconds:g} s"
    return [Finding("problem", _several(stuck), finding, advice)]


def letter_findings(queues: Iterable[QueueFacts], known: Iterable[WorkQueue]) -> list[Finding]:
    """Return findings about dead letters of queues that the app does not declare; others cover its own."""
    own = {dead_letter_queue(queue.name) for queue in known}
    return [
        Finding("warning", name, f"{queue.ready} dead letters", f"taskmq dlq groups {name}")
        for queue in queues
        if queue.name.endswith(".dlq") and queue.name not in own and queue.ready
        for name in (logical_queue(queue.name),)
    ]


def orphan_findings(queues: Iterable[QueueFacts], known: Iterable[WorkQueue]) -> list[Finding]:
    """Return findings about work queues without a consumer that the app does not declare."""
    own = {name for queue in known for name in queue.physical}
    waiting = {
        queue.name: queue.ready or 0
        for queue in queues
        if queue.arguments.get("x-dead-letter-exchange") == DEAD_LETTERS
        and queue.name not in own
        and not queue.consumers
        and not is_passage(queue.name)
    }
    if not any(waiting.values()):
        return []
    names = [name for name, count in waiting.items() if count]
    count = sum(waiting.values())
    return [
        Finding(
            "warning",
            _several(names),
            f"no consumer, {count} messages wait, and the app does not know the queue",
            "start its worker, or delete it if it is not needed any more",
        )
    ]


def _limits(policy: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={policy[key]}" for key in ("max-length", "max-length-bytes") if key in policy)


def _own_limit(queue: QueueFacts) -> bool:
    return any(key in queue.arguments for key in ("x-max-length", "x-max-length-bytes"))


def _name_policy(queue: QueueFacts) -> str:
    names = [f"policy {queue.policy}"] if queue.policy else []
    names += [f"operator policy {queue.operator_policy}"] if queue.operator_policy else []
    return " and ".join(names) or "policy"


def _several(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
