"""Tests of schedule records, changed by compare-and-set, and of shared definitions."""

import asyncio
import random
import uuid

from taskmq.contracts.stores import ChangedSchedule, KeptRecord, RecordChange, ScheduleStore
from taskmq.testing.runner import case, eventually
from taskmq.testing.state_suite.case import LONG, StateCase, new

_MANY = 600


class ScheduleCases(StateCase):
    """Every guarantee of `ScheduleStore`."""

    @case
    async def test_a_record_replaces_the_one_it_is_based_on(self) -> None:
        store, other = self.state().schedules, self.state().schedules
        name = new("größe ☂")
        first, second = _record(b"1\x00\xff"), _record(b"")

        assert await other.read([name]) == [None]
        assert await store.swap([RecordChange(name, "", first)], ttl=LONG) == [first]
        assert await other.read([name, new("none"), name]) == [first, None, first]
        assert await other.swap([RecordChange(name, first.version, second)], ttl=LONG) == [second]
        assert await store.read([name]) == [second]

    @case
    async def test_a_record_based_on_another_is_rejected_with_the_current_one(self) -> None:
        store, other = self.state().schedules, self.state().schedules
        name, kept = new("name"), _record(b"kept")
        await store.swap([RecordChange(name, "", kept)], ttl=LONG)

        for before in ("", _record().version):
            assert await other.swap([RecordChange(name, before, _record())], ttl=LONG) == [kept]
        missing = new("missing")
        assert await other.swap([RecordChange(missing, _record().version, _record())], ttl=LONG) == [None]

        assert await store.read([name, missing]) == [kept, None]

    @case
    async def test_a_repeated_swap_gets_the_same_answer(self) -> None:
        store = self.state().schedules
        name, first, second = new("name"), _record(b"first"), _record(b"second")
        changes = [RecordChange(name, "", first)], [RecordChange(name, first.version, second)]

        for change in changes:
            for _ in range(2):
                assert await store.swap(change, ttl=LONG) == [change[0].after]

        assert await store.swap(changes[0], ttl=LONG) == [second]

    @case
    async def test_changes_to_records_in_one_call_apply_independently(self) -> None:
        store, other = self.state().schedules, self.state().schedules
        names = [new("name") for _ in range(_MANY)]
        taken = [RecordChange(name, "", _record(name.encode())) for name in names[::3]]
        assert await other.swap(taken, ttl=LONG) == [change.after for change in taken]

        changes = [RecordChange(name, "", _record()) for name in names]
        answers = await store.swap(changes, ttl=LONG)

        expected = [change.after for change in changes]
        expected[::3] = [change.after for change in taken]
        assert answers == expected
        assert await other.read(names) == expected
        assert await other.read([]) == []
        assert await other.swap([], ttl=LONG) == []

    @case
    async def test_only_one_of_many_concurrent_record_changes_applies(self) -> None:
        stores = [self.state().schedules for _ in range(5)]
        name = new("name")
        before = ""

        for _ in range(10):
            records = [_record() for _ in range(20)]
            answers = await asyncio.gather(
                *(
                    stores[at % 5].swap([RecordChange(name, before, record)], ttl=LONG)
                    for at, record in enumerate(records)
                )
            )
            (winner,) = {answer.version for (answer,) in answers if answer is not None}
            assert winner in [record.version for record in records]
            before = winner

    @case
    async def test_records_expire(self) -> None:
        store, other = self.state().schedules, self.state().schedules
        name, again = new("name"), _record(b"again")
        await store.swap([RecordChange(name, "", _record())], ttl=self.short)

        await self.advance(self.short * 1.5)

        assert await other.read([name]) == [None]
        assert await other.swap([RecordChange(name, "", again)], ttl=LONG) == [again]

    @case
    async def test_definitions_are_added_changed_and_removed_by_compare_and_set(self) -> None:
        store, other = self.state().schedules, self.state().schedules
        scope, name = new("app ☂"), new("name ☂")

        assert await store.define(scope, name, before=None, after=b"one\xff")
        assert not await other.define(scope, name, before=None, after=b"other")
        assert not await other.define(scope, name, before=b"two", after=b"three")
        assert await other.define(scope, name, before=b"one\xff", after=b"")
        assert await _definitions(store, scope) == {name: b""}
        assert not await store.define(scope, name, before=b"one\xff", after=None)
        assert await store.define(scope, name, before=b"", after=None)

        assert await _definitions(other, scope) == {}
        assert await other.define(scope, name, before=None, after=b"again")
        assert await _definitions(store, new("app")) == {}

    @case
    async def test_a_repeated_definition_gets_the_same_answer(self) -> None:
        store = self.state().schedules
        scope, name = new("app"), new("name")

        for _ in range(2):
            assert await store.define(scope, name, before=None, after=b"one")
        for _ in range(2):
            assert await store.define(scope, name, before=b"one", after=None)

    @case
    async def test_changes_are_read_from_a_cursor(self) -> None:
        store, other = self.state().schedules, self.state().schedules
        scope = new("app")
        names = [new("name") for _ in range(30)]
        for name in names:
            await store.define(scope, name, before=None, after=name.encode())

        pages, cursor = list[ChangedSchedule](), 0
        while page := await other.list_changed(scope, cursor, limit=7):
            pages += page
            cursor = page[-1].cursor
        assert [change.name for change in pages] == names
        assert [change.cursor for change in pages] == sorted({change.cursor for change in pages})

        await store.define(scope, names[3], before=names[3].encode(), after=b"changed")
        await store.define(scope, names[1], before=names[1].encode(), after=None)
        await store.tell(scope, ["defined elsewhere", names[9]])

        changed = await other.list_changed(scope, cursor, limit=100)
        assert [(change.name, change.definition) for change in changed] == [
            (names[3], b"changed"),
            (names[1], None),
            ("defined elsewhere", None),
            (names[9], names[9].encode()),
        ]
        assert await other.list_changed(scope, changed[-1].cursor, limit=100) == []

    @case
    async def test_a_listener_is_called_after_a_change(self) -> None:
        store, other = self.state().schedules, self.state().schedules
        scope, name = new("app"), new("name")
        calls = 0

        def heard() -> None:
            nonlocal calls
            calls += 1

        async def has_heard() -> bool:
            return calls > 0

        async def is_listening() -> bool:
            await store.tell(scope, [name])
            return calls > 0

        stop = other.listen(scope, heard)
        await eventually(is_listening, True, within=self.patience)
        for step in (
            lambda: store.define(scope, name, before=None, after=b"one"),
            lambda: store.tell(scope, [name]),
            lambda: store.define(scope, name, before=b"one", after=None),
        ):
            calls = 0
            await step()
            await eventually(has_heard, True, within=self.patience)
        stop()
        stop()

    @case
    async def test_random_swaps_match_the_model(self) -> None:
        stores = [self.state().schedules for _ in range(3)]
        dice = random.Random(6)
        names = [new("name") for _ in range(4)]
        model: dict[str, KeptRecord] = {}

        for step in range(150):
            chosen = dice.sample(names, dice.randint(1, 4))
            changes = list[RecordChange]()
            for name in chosen:
                kept = model.get(name)
                known = kept.version if kept is not None else ""
                changes.append(RecordChange(name, dice.choice((known, known, "", _record().version)), _record()))
            expected = list[KeptRecord | None]()
            for change in changes:
                kept = model.get(change.name)
                if change.before == ("" if kept is None else kept.version):
                    model[change.name] = change.after
                expected.append(model.get(change.name))

            assert await dice.choice(stores).swap(changes, ttl=LONG) == expected, f"step {step}"
            assert await dice.choice(stores).read(names) == [model.get(name) for name in names], f"step {step}"


def _record(value: bytes = b"value") -> KeptRecord:
    return KeptRecord(uuid.uuid4().hex[:16], value)


async def _definitions(store: ScheduleStore, scope: str) -> dict[str, bytes]:
    changes = await store.list_changed(scope, 0, limit=100)
    return {change.name: change.definition for change in changes if change.definition is not None}
