"""The fate of every task, judged only by ledgers. Pure.

A sender gets one of three results for a task: it was sent (`OK`), it was not (a typed error), or that is unknown
(`UNKNOWN`). A task runs any number of times. The verdict combines both:

    lost        it was sent, and never ran, nor is it a dead letter
    phantom     it ran without any attempt to send it
    ghost       it ran, although its sender was told that nothing was sent
    recovered   its send is unknown, and it ran: fine
    early       it ran before its time
    duplicated  it ran more than once: allowed if a fault explains it, otherwise `unexplained`
    untyped     its sender got an exception that is not a `SendError`
    late        its sender got no result until more than a second after the deadline, not counting the time for which
                its process was suspended
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

OK: Final = "ok"
UNKNOWN: Final = "PublishUnknown"
UNTYPED: Final = "!"
"""Prefix of an outcome that is not one of the `SendError`s."""

_TOLERANCE_MS: Final = 1000
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Send:
    """A call of `send`, as its caller saw it.

    Attributes:
        token: names the task in all ledgers.
        outcome: `OK`, the name of a `SendError`, or `UNTYPED` and the name of another exception.
        began: ms since the epoch.
        took: ms until the outcome.
        due: the task must not run before (ms since the epoch); None: at once.
    """

    token: str
    outcome: str
    began: int
    took: int
    due: int | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a task, `at` ms since the epoch, in process `worker`."""

    token: str
    at: int
    worker: int = 0


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault from `began` until full recovery at `ended`, ms since the epoch."""

    what: str
    began: int
    ended: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The violations, as tokens, and the counts of correct tasks."""

    lost: tuple[str, ...] = ()
    phantom: tuple[str, ...] = ()
    ghost: tuple[str, ...] = ()
    early: tuple[str, ...] = ()
    unexplained: tuple[str, ...] = ()
    untyped: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    sends: int = 0
    outcomes: Counter[str] = field(default_factory=Counter[str])
    runs: int = 0
    duplicated: int = 0
    recovered: int = 0
    dead: int = 0
    slowest: int = 0
    stories: tuple[str, ...] = ()

    @property
    def wrong(self) -> dict[str, tuple[str, ...]]:
        """Return the violations by kind; empty if there are none."""
        kinds = ("lost", "phantom", "ghost", "early", "unexplained", "untyped", "late")
        found: dict[str, tuple[str, ...]] = {kind: getattr(self, kind) for kind in kinds}
        return {kind: tokens for kind, tokens in found.items() if tokens}

    def __str__(self) -> str:
        errors = ", ".join(
            f"{name} {count:,}" for name, count in sorted(self.outcomes.items()) if name not in {OK, UNKNOWN}
        )
        bad = "; ".join(f"{len(tokens)} {kind}: {tokens[:_SHOWN]}" for kind, tokens in self.wrong.items())
        return (
            f"{self.sends:,} sends: {self.outcomes[OK]:,} confirmed, {self.outcomes[UNKNOWN]:,} unknown "
            f"({self.recovered:,} of them ran), errors: {errors or 'none'}; slowest {self.slowest / 1000:.2f} s; "
            f"{self.runs:,} runs, {self.duplicated:,} tasks more than once, {self.dead:,} dead letters; "
            f"{'; '.join((bad, *self.stories)) if bad else '0 lost, 0 wrong'}"
        )


def judge(
    sends: Iterable[Send],
    runs: Iterable[Run],
    *,
    dead: Iterable[str] = (),
    faults: Iterable[Fault] = (),
    deadline: float = 10.0,
    stall: float = 0.0,
) -> Verdict:
    """Judge a finished campaign: queues drained, every process ended.

    Args:
        sends: records of the producers.
        runs: records of the workers.
        dead: tokens of the dead letters.
        faults: injected faults, which explain duplicates.
        deadline: seconds within which every send had to end.
        stall: seconds for which the machine suspended a sender, which no deadline can prevent.
    """
    by_token = {send.token: send for send in sends}
    times: defaultdict[str, list[int]] = defaultdict(list)
    for run in runs:
        times[run.token].append(run.at)
    letters, known_faults = set(dead), list(faults)
    arrived = times.keys() | letters
    several = [token for token, at in times.items() if len(at) > 1]
    unexplained = _tokens(
        token for token in several if not _is_explained(by_token.get(token), times[token], known_faults)
    )
    limit = (deadline + stall) * 1000 + _TOLERANCE_MS
    every = by_token.values()
    return Verdict(
        lost=_tokens(send.token for send in every if send.outcome == OK and send.token not in arrived),
        phantom=_tokens(token for token in arrived if token not in by_token),
        ghost=_tokens(send.token for send in every if _is_refused(send.outcome) and send.token in arrived),
        early=_tokens(
            send.token
            for send in every
            if send.due is not None and send.token in times and min(times[send.token]) < send.due
        ),
        unexplained=unexplained,
        untyped=_tokens(send.token for send in every if send.outcome.startswith(UNTYPED)),
        late=_tokens(send.token for send in every if send.took > limit),
        sends=len(by_token),
        outcomes=Counter(send.outcome for send in every),
        runs=sum(map(len, times.values())),
        duplicated=len(several),
        recovered=sum(send.outcome == UNKNOWN and send.token in arrived for send in every),
        dead=len(letters),
        slowest=max((send.took for send in every), default=0),
        stories=tuple(_story(by_token.get(token), times[token], known_faults) for token in unexplained[:_SHOWN]),
    )


def _tokens(tokens: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(tokens))


def _is_refused(outcome: str) -> bool:
    return outcome not in {OK, UNKNOWN} and not outcome.startswith(UNTYPED)


def _is_explained(send: Send | None, times: list[int], faults: list[Fault]) -> bool:
    """Whether there was a fault between the first try to send the task and its last run."""
    first = min(times) if send is None else min(send.began, *times)
    return any(fault.began <= max(times) and fault.ended >= first for fault in faults)


def _story(send: Send | None, times: list[int], faults: list[Fault]) -> str:
    """Return the sends, runs and faults of a task, in ms from its beginning on."""
    began = min(times) if send is None else send.began
    told = "never sent" if send is None else f"{send.token} {send.outcome} after {send.took}"
    before = max((fault for fault in faults if fault.ended < began), key=lambda fault: fault.ended, default=None)
    after = min((fault for fault in faults if fault.began > began), key=lambda fault: fault.began, default=None)
    return (
        f"{told}, ran at {[at - began for at in sorted(times)]}, "
        f"before: {before and (before.what, before.began - began, before.ended - began)}, "
        f"after: {after and (after.what, after.began - began)}"
    )
