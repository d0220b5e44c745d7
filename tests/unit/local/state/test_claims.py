"""A model of claims over time: one holder, growing tokens, done stays done, late holders are refused."""

from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from taskmq.contracts.stores import Done, Granted, Held
from taskmq.testing import FakeClock
from taskmq_local.memory.store import OpenState
from taskmq_local.memory.tables import MemoryDatabase, MemoryTables
from taskmq_local.rules.claims import FORGOTTEN
from taskmq_local.state.claims import LocalClaims

T = TypeVar("T")

_KEYS: Final = st.sampled_from(["a", "b"])
_TTL: Final = 50
_TIME: Final = st.integers(1, 60)


def _run(call: Coroutine[Any, Any, T]) -> T:
    """Return the result of a call that never waits."""
    with pytest.raises(StopIteration) as ended:
        call.send(None)
    result: T = ended.value.value
    return result


class ClaimsOverTime(RuleBasedStateMachine):
    """The history of two keys; `claims` are those that were granted, including expired ones."""

    claims: Bundle[tuple[str, int]] = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock(1_000)
        self.store = LocalClaims(MemoryDatabase(MemoryTables(), OpenState("memory://")), self.clock)
        self.tokens: dict[str, list[int]] = {"a": [], "b": []}
        # Of the last token of each key: its expiry as held, as done, and as known.
        self.until: dict[str, int] = {}
        self.keep: dict[str, int] = {}
        self.ended: dict[str, str] = {}

    @rule(target=claims, key=_KEYS, lease=_TIME, passes=st.booleans())
    def claim(self, key: str, lease: int, passes: bool) -> tuple[str, int]:
        last = self.tokens[key][-1] if self.tokens[key] else 0
        over = last if passes else None
        answer = _run(self.store.claim(key, job_id="j", owner="o", lease=lease / 1000, ttl=_TTL / 1000, over=over))
        stage = self._stage(key)
        if stage == "done":
            assert answer == Done(job_id="j", content_type="t", value=b"v")
            return key, last
        if stage == "held" and not passes:
            assert isinstance(answer, Held)
            assert answer.token == last
            assert answer.left == (self.until[key] - self.now) / 1000
            return key, last
        assert isinstance(answer, Granted)
        assert answer.token > last
        self.tokens[key].append(answer.token)
        self.until[key], self.keep[key] = self.now + lease, _TTL
        self.ended.pop(key, None)
        return key, answer.token

    @rule(claim=claims, lease=_TIME)
    def renew(self, claim: tuple[str, int], lease: int) -> None:
        key, token = claim
        is_known = self._is_known(key)
        lost = _run(self.store.renew({key: token}, lease=lease / 1000))
        is_last = token == self.tokens[key][-1:][0] if self.tokens[key] else False
        if is_known:
            assert bool(lost) is not (is_last and key not in self.ended)
        if not lost:
            self._adopt(key, token)
            self.until[key] = self.now + lease
            if not is_known:
                self.keep[key] = FORGOTTEN

    @rule(claim=claims, ttl=_TIME)
    def complete(self, claim: tuple[str, int], ttl: int) -> None:
        key, token = claim
        is_known = self._is_known(key)
        was_done = self._stage(key) == "done"
        counts = _run(self.store.complete(key, token=token, job_id="j", content_type="t", value=b"v", ttl=ttl / 1000))
        if is_known:
            is_last = token == self.tokens[key][-1]
            assert counts is (is_last and self.ended.get(key) != "released")
        if counts and not was_done:
            self._adopt(key, token)
            self.until[key], self.ended[key] = self.now + ttl, "done"
            self.keep.setdefault(key, 0)

    @rule(claim=claims)
    def release(self, claim: tuple[str, int]) -> None:
        key, token = claim
        is_known, was_held = self._is_known(key), key not in self.ended
        counts = _run(self.store.release(key, token=token))
        if not is_known:
            assert counts
            return
        assert counts is (token == self.tokens[key][-1])
        if counts and was_held:
            self.until[key], self.ended[key] = self.now, "released"

    @rule(time=_TIME)
    def pass_time(self, time: int) -> None:
        self.clock.advance(time / 1000)

    @invariant()
    def check_other_views(self) -> None:
        for key in "ab":
            seen = _run(self.store.find(key))
            stage = self._stage(key)
            assert isinstance(seen, Done) is (stage == "done")
            assert isinstance(seen, Held) is (stage == "held")

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    def _adopt(self, key: str, token: int) -> None:
        """A forgotten key continues with its next holder."""
        if not self.tokens[key] or self.tokens[key][-1] != token:
            self.tokens[key] = [token]
        if self.ended.get(key) is not None and not self._is_known(key):
            self.ended.pop(key)

    def _stage(self, key: str) -> str:
        if key not in self.until or self.until[key] <= self.now:
            return "free"
        return {"done": "done", "released": "free"}.get(self.ended.get(key, ""), "held")

    def _is_known(self, key: str) -> bool:
        if key not in self.until:
            return False
        keep = 0 if self.ended.get(key) == "done" else self.keep[key]
        return self.until[key] + keep > self.now


TestClaimsOverTime = ClaimsOverTime.TestCase
TestClaimsOverTime.settings = settings(stateful_step_count=40)
