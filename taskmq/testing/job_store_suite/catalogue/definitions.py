"""Tests of definitions: versions, compare-and-set, pages, deletion."""

import asyncio
import random
from typing import Final

from taskmq.contracts.jobs import Catalogued, DefinitionPage, DefinitionStore, PutDefinition
from taskmq.errors import StoreUnavailable
from taskmq.model.jobs.definitions import Definition, DefinitionContent, encode_content
from taskmq.model.jobs.registrations import TaskRegistration
from taskmq.testing.job_store.catalogue import CatalogueModel
from taskmq.testing.job_store_suite.case import JobStoreCase
from taskmq.testing.runner import case

_MAIL: Final = DefinitionContent(task="mail.send")
_WHOLE: Final = DefinitionContent(
    task="mail.send",
    args=["größe ☂", 1, 1.5, None, {"deep": [True]}],
    kwargs={"to": "ann", "☂": "a\0b"},
    queue="mail",
    priority=7,
    expires=3_600_000,
    labels={"team": "ops", "☂": "x=y"},
    description="every month ☂",
    owner="ann",
)
_WRITERS: Final = 20


class Definitions(JobStoreCase):
    """Every guarantee of `DefinitionStore`.

    Attributes:
        definition_seed, definition_steps: of the random history that is compared with the reference.
    """

    definition_seed = 0
    definition_steps = 120

    def definitions(self) -> DefinitionStore:
        """Return the definitions of a store that is closed at the end of the test."""
        store = self.store()
        assert isinstance(store, Catalogued)
        return store.definitions

    @case
    async def test_a_definition_is_read_back_unchanged(self) -> None:
        store = self.store()
        assert isinstance(store, Catalogued)
        before = await store.now_ms()

        put = await store.definitions.put("acme", "monthly", _WHOLE, by="bob ☂")

        assert put is not None
        assert put.is_new
        made = put.definition
        assert (made.tenant, made.name, made.version, made.by) == ("acme", "monthly", 1, "bob ☂")
        assert made.content == _WHOLE
        assert before <= made.at <= await store.now_ms()
        other = self.definitions()
        assert await other.get("acme", "monthly") == made
        assert await other.get("acme", "monthly", version=1) == made

    @case
    async def test_changed_content_creates_a_new_version_and_keeps_the_old(self) -> None:
        definitions, other = self.definitions(), self.definitions()
        first = await _put(definitions, "monthly", DefinitionContent(task="a"))

        second = await _put(other, "monthly", DefinitionContent(task="b"), by="ann")

        assert (second.version, second.content.task, second.by) == (2, "b", "ann")
        assert await definitions.get("", "monthly") == second
        assert await definitions.get("", "monthly", version=1) == first
        assert await definitions.get("", "monthly", version=3) is None
        assert await definitions.get("", "monthly", version=0) is None

    @case
    async def test_unchanged_content_creates_no_version(self) -> None:
        definitions, other = self.definitions(), self.definitions()
        first = await _put(definitions, "monthly", _WHOLE, by="ann")

        again = await other.put("", "monthly", _WHOLE, by="bob")

        assert again is not None
        assert (again.definition, again.is_new) == (first, False)
        assert await definitions.versions("", "monthly") == [first]

    @case
    async def test_changing_any_field_changes_the_content(self) -> None:
        definitions = self.definitions()
        contents = [
            _MAIL,
            DefinitionContent(task="mail.send", args=[1]),
            DefinitionContent(task="mail.send", args=[1.0]),
            DefinitionContent(task="mail.send", args=[True]),
            DefinitionContent(task="mail.send", kwargs={"a": 1}),
            DefinitionContent(task="mail.send", queue="q"),
            DefinitionContent(task="mail.send", priority=0),
            DefinitionContent(task="mail.send", expires=0),
            DefinitionContent(task="mail.send", labels={"a": "b"}),
            DefinitionContent(task="mail.send", description="d"),
            DefinitionContent(task="mail.send", owner="o"),
        ]

        for number, content in enumerate(contents, 1):
            assert (await _put(definitions, "d", content)).version == number

        assert [one.content for one in await definitions.versions("", "d")] == contents[::-1]

    @case
    async def test_argument_order_does_not_change_the_content(self) -> None:
        definitions = self.definitions()
        await _put(definitions, "d", DefinitionContent(task="t", kwargs={"a": 1, "b": 2}))

        again = await _put(definitions, "d", DefinitionContent(task="t", kwargs={"b": 2, "a": 1}))

        assert again.version == 1

    @case
    async def test_a_definition_belongs_to_its_tenant(self) -> None:
        definitions = self.definitions()
        ours = await _put(definitions, "d", _MAIL, tenant="acme")
        theirs = await _put(definitions, "d", _WHOLE, tenant="umbrella")

        assert await definitions.get("acme", "d") == ours
        assert await definitions.get("umbrella", "d") == theirs
        assert await definitions.get("", "d") is None
        assert await definitions.get("nobody", "d") is None
        assert await definitions.delete("acme", "d")
        assert await definitions.get("umbrella", "d") == theirs
        assert await definitions.page("nobody") == DefinitionPage([], None)
        assert await definitions.versions("nobody", "d") == []
        assert not await definitions.delete("nobody", "d")

    @case
    async def test_a_put_for_another_version_changes_nothing(self) -> None:
        definitions = self.definitions()

        assert await definitions.put("", "d", _MAIL, version=1) is None
        assert await definitions.get("", "d") is None
        made = await definitions.put("", "d", _MAIL, version=0)
        assert made is not None
        assert await definitions.put("", "d", _WHOLE, version=0) is None
        assert await definitions.put("", "d", _MAIL, version=2) is None
        assert await definitions.versions("", "d") == [made.definition]
        second = await definitions.put("", "d", _WHOLE, version=1)
        assert second is not None
        assert second.definition.version == 2

    @case
    async def test_a_deleted_definition_is_not_found_and_keeps_its_versions(self) -> None:
        definitions, other = self.definitions(), self.definitions()
        first, second = await _put(definitions, "d", _MAIL), await _put(definitions, "d", _WHOLE)

        assert await other.delete("", "d")

        assert await definitions.get("", "d") is None
        assert await definitions.page("") == DefinitionPage([], None)
        assert await definitions.get("", "d", version=1) == first
        assert await definitions.versions("", "d") == [second, first]
        assert not await definitions.delete("", "d")

    @case
    async def test_a_deletion_for_another_version_changes_nothing(self) -> None:
        definitions = self.definitions()
        made = await _put(definitions, "d", _MAIL)

        assert not await definitions.delete("", "d", version=2)
        assert not await definitions.delete("", "d", version=0)
        assert await definitions.get("", "d") == made
        assert await definitions.delete("", "d", version=1)
        assert not await definitions.delete("", "d", version=1)

    @case
    async def test_recreating_a_deleted_definition_continues_its_versions(self) -> None:
        definitions = self.definitions()
        await _put(definitions, "d", _MAIL)
        await definitions.delete("", "d")

        assert await definitions.put("", "d", _MAIL, version=1) is None
        again = await definitions.put("", "d", _MAIL, version=0)

        assert again is not None
        assert (again.definition.version, again.is_new) == (2, True)
        assert await definitions.get("", "d") == again.definition

    @case
    async def test_definitions_are_listed_by_name_in_pages(self) -> None:
        definitions = self.definitions()
        names = ["Z", "a", "a.b", "a.b.c", "a_b", "ab", "b", "ö", "☂"]
        for name in reversed(names):
            await _put(definitions, name, _MAIL)
        await _put(definitions, "a.b", _WHOLE)
        await _put(definitions, "a.c", _MAIL)
        await definitions.delete("", "a.c")

        found: list[str] = []
        after: str | None = None
        while True:
            page = await definitions.page("", after=after, limit=4)
            found += [one.name for one in page.definitions]
            if (after := page.after) is None:
                break

        assert found == names
        (latest,) = [one for one in (await definitions.page("")).definitions if one.name == "a.b"]
        assert (latest.version, latest.content) == (2, _WHOLE)
        assert (await definitions.page("", limit=len(names))).after is None

    @case
    async def test_definitions_are_listed_by_name_prefix(self) -> None:
        definitions = self.definitions()
        for name in ("a", "a.b", "a.c", "a_b", "a%b", "A.b", "b"):
            await _put(definitions, name, _MAIL)

        assert await _names(definitions, prefix="a.") == ["a.b", "a.c"]
        assert await _names(definitions, prefix="a_") == ["a_b"]
        assert await _names(definitions, prefix="a%") == ["a%b"]
        assert await _names(definitions, prefix="c") == []
        page = await definitions.page("", prefix="a.", limit=1)
        assert page.after == "a.b"
        assert await _names(definitions, prefix="a.", after="a.b") == ["a.c"]
        assert await _names(definitions, prefix="a.", after="z") == []

    @case
    async def test_versions_are_listed_in_pages(self) -> None:
        definitions = self.definitions()
        for number in range(5):
            await _put(definitions, "d", DefinitionContent(task="t", args=[number]))

        assert [one.version for one in await definitions.versions("", "d", limit=2)] == [5, 4]
        assert [one.version for one in await definitions.versions("", "d", before=4, limit=2)] == [3, 2]
        assert [one.version for one in await definitions.versions("", "d", before=2)] == [1]
        assert await definitions.versions("", "d", before=1) == []
        assert await definitions.versions("", "e") == []

    @case
    async def test_concurrent_writers_of_one_name_create_consecutive_versions(self) -> None:
        stores = [self.definitions() for _ in range(2)]

        made = await asyncio.gather(
            *(_put(stores[number % 2], "d", DefinitionContent(task="t", args=[number])) for number in range(_WRITERS))
        )

        assert sorted(one.version for one in made) == list(range(1, _WRITERS + 1))
        versions = await stores[0].versions("", "d")
        assert versions == sorted(made, key=_version, reverse=True)

    @case
    async def test_only_one_writer_based_on_a_version_creates_the_next(self) -> None:
        stores = [self.definitions() for _ in range(2)]
        await _put(stores[0], "d", _MAIL)

        for version in (1, 2, 3):
            made = await asyncio.gather(
                *(
                    stores[number % 2].put(
                        "", "d", DefinitionContent(task="t", args=[version, number]), version=version
                    )
                    for number in range(_WRITERS)
                )
            )
            assert [each is not None for each in made].count(True) == 1
        assert len(await stores[0].versions("", "d")) == 4

    @case
    async def test_concurrent_puts_of_the_same_content_create_one_version(self) -> None:
        stores = [self.definitions() for _ in range(2)]

        made = await asyncio.gather(*(stores[number % 2].put("", "d", _WHOLE) for number in range(_WRITERS)))

        assert [each is not None and each.is_new for each in made].count(True) == 1
        assert len(await stores[0].versions("", "d")) == 1

    @case
    async def test_a_name_the_database_cannot_store_is_unknown(self) -> None:
        definitions = self.definitions()
        await _put(definitions, "d", _MAIL)

        for name in ("d\0", "\ud800", "x" * 500):
            assert await definitions.get("", name) is None
            assert await definitions.get("", name, version=1) is None
            assert await definitions.get(name, "d") is None
            assert await definitions.versions("", name) == []
            assert await definitions.page("", prefix=name) == DefinitionPage([], None)
            assert not await definitions.delete("", name)

    @case
    async def test_names_can_contain_sql_special_characters(self) -> None:
        definitions = self.definitions()
        name = "'; drop table definition --%_\\"

        made = await _put(definitions, name, _MAIL, tenant=name)

        assert await definitions.get(name, name) == made
        assert (await definitions.page(name, prefix="'; ")).definitions == [made]

    @case
    async def test_content_of_one_mebibyte_is_stored(self) -> None:
        definitions = self.definitions()
        content = DefinitionContent(task="t", args=["x" * 2**20])

        await _put(definitions, "d", content)

        found = await self.definitions().get("", "d")
        assert found is not None
        assert found.content == content

    @case
    async def test_a_closed_store_neither_finds_nor_changes_definitions(self) -> None:
        definitions = self.definitions()
        await _put(definitions, "d", _MAIL)
        store = self.store()
        assert isinstance(store, Catalogued)
        await store.aclose()

        for call in (
            store.definitions.put("", "d", _WHOLE),
            store.definitions.get("", "d"),
            store.definitions.page(""),
            store.definitions.versions("", "d"),
            store.definitions.delete("", "d"),
            store.tasks.register([TaskRegistration(task="t", queue="q")], origin="app"),
            store.tasks.registrations(["t"]),
            store.tasks.names(),
        ):
            try:
                await call
            except StoreUnavailable:
                continue
            raise AssertionError(f"{call!r} of a closed store did not raise StoreUnavailable")
        assert [one.content for one in await definitions.versions("", "d")] == [_MAIL]

    @case
    async def test_random_histories_of_definitions_match_the_model(self) -> None:
        dice = random.Random(self.definition_seed)
        stores = [self.definitions() for _ in range(2)]
        model = CatalogueModel()

        for step in range(self.definition_steps):
            store = dice.choice(stores)
            tenant, name = dice.choice(("", "acme")), dice.choice(("a", "a.b", "b"))
            version = dice.choice((None, None, 0, 1, 2, 3))
            content = DefinitionContent(task=dice.choice("tu"), args=[dice.choice((1, 1.0, True))])
            match dice.choice(("put", "put", "delete", "get", "page", "versions")):
                case "put":
                    made = await store.put(tenant, name, content, version=version, by="ann")
                    expected = model.put(tenant, name, content, version=version, by="ann", now=0)
                    assert _without_time(made) == _without_time(expected), step
                case "delete":
                    is_deleted = await store.delete(tenant, name, version=version)
                    assert is_deleted is model.delete(tenant, name, version=version), step
                case "get":
                    found = await store.get(tenant, name, version=version)
                    assert _text(found) == _text(model.get(tenant, name, version=version)), step
                case "page":
                    page = await store.page(tenant, prefix="a", limit=1)
                    wanted = model.page(tenant, prefix="a", after=None, limit=1)
                    assert (list(map(_text, page.definitions)), page.after) == (
                        list(map(_text, wanted.definitions)),
                        wanted.after,
                    ), step
                case _:
                    listed = await store.versions(tenant, name, before=version, limit=2)
                    kept = model.versions(tenant, name, before=version, limit=2)
                    assert list(map(_text, listed)) == list(map(_text, kept)), step


def _without_time(put: PutDefinition | None) -> tuple[object, bool] | None:
    return None if put is None else (_text(put.definition), put.is_new)


def _text(definition: Definition | None) -> object:
    """Return all of a definition except its time, with its content as text, where `1` is not `1.0`."""
    if definition is None:
        return None
    return definition.tenant, definition.name, definition.version, definition.by, encode_content(definition.content)


async def _put(
    definitions: DefinitionStore, name: str, content: DefinitionContent, *, tenant: str = "", by: str = ""
) -> Definition:
    put = await definitions.put(tenant, name, content, by=by)
    assert put is not None
    return put.definition


async def _names(definitions: DefinitionStore, *, prefix: str, after: str | None = None) -> list[str]:
    return [one.name for one in (await definitions.page("", prefix=prefix, after=after)).definitions]


def _version(definition: Definition) -> int:
    return definition.version
