"""Definitions and tasks over dictionaries: the reference, and the part of a `MemoryJobStore` that keeps them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from taskmq.contracts.jobs import DefinitionPage, PutDefinition
from taskmq.model.jobs.definitions import Definition, DefinitionContent, decode_content, encode_content
from taskmq.model.jobs.registrations import Origin, RegisteredTask, TaskRegistration, encode_registration

__all__ = ["CatalogueModel", "MemoryDefinitions", "MemoryTasks"]

_KEPT_MS: Final = 30 * 86_400_000


class CatalogueModel:
    """The contracts `DefinitionStore` and `TaskStore` without their awaits, at the caller's time."""

    def __init__(self) -> None:
        self._versions: defaultdict[tuple[str, str], list[Definition]] = defaultdict(list)
        self._deleted: set[tuple[str, str]] = set()
        self._tasks: defaultdict[str, dict[tuple[Origin, bytes], RegisteredTask]] = defaultdict(dict)

    def put(
        self, tenant: str, name: str, content: DefinitionContent, *, version: int | None, by: str, now: int
    ) -> PutDefinition | None:
        text = encode_content(content)
        present = self.get(tenant, name, version=None)
        if version is not None and version != (0 if present is None else present.version):
            return None
        if present is not None and encode_content(present.content) == text:
            return PutDefinition(present, False)
        versions = self._versions[tenant, name]
        made = Definition(
            tenant=tenant, name=name, version=len(versions) + 1, at=now, by=by, content=decode_content(text)
        )
        versions.append(made)
        self._deleted.discard((tenant, name))
        return PutDefinition(made, True)

    def get(self, tenant: str, name: str, *, version: int | None) -> Definition | None:
        versions = self._versions.get((tenant, name), [])
        if version is not None:
            return versions[version - 1] if 1 <= version <= len(versions) else None
        return None if (tenant, name) in self._deleted or not versions else versions[-1]

    def page(self, tenant: str, *, prefix: str, after: str | None, limit: int) -> DefinitionPage:
        there = (name for owner, name in self._versions if owner == tenant and (owner, name) not in self._deleted)
        names = _some(there, prefix, after)
        found = [self._versions[tenant, name][-1] for name in names[:limit]]
        return DefinitionPage(found, found[-1].name if len(names) > limit else None)

    def versions(self, tenant: str, name: str, *, before: int | None, limit: int) -> list[Definition]:
        found = self._versions.get((tenant, name), [])
        return [one for one in reversed(found) if before is None or one.version < before][:limit]

    def delete(self, tenant: str, name: str, *, version: int | None) -> bool:
        present = self.get(tenant, name, version=None)
        if present is None or version not in (None, present.version):
            return False
        self._deleted.add((tenant, name))
        return True

    def forget_tenant(self, tenant: str) -> None:
        for key in [key for key in self._versions if key[0] == tenant]:
            del self._versions[key]
            self._deleted.discard(key)

    def register(self, registrations: Sequence[TaskRegistration], *, origin: Origin, worker: str, now: int) -> None:
        for one in registrations:
            forms = self._tasks[one.task]
            key = (origin, encode_registration(one))
            known = forms.get(key)
            first = now if known is None else known.first
            forms[key] = RegisteredTask(registration=one, origin=origin, worker=worker, first=first, last=now)
        for task, forms in list(self._tasks.items()):
            kept = {key: form for key, form in forms.items() if form.last > now - _KEPT_MS}
            self._tasks[task] = kept
            if not kept:
                del self._tasks[task]

    def registrations(self, tasks: Sequence[str]) -> list[RegisteredTask]:
        return [form for task in set(tasks) for form in self._tasks.get(task, {}).values()]

    def names(self, *, prefix: str, after: str | None, limit: int) -> list[str]:
        return _some(self._tasks, prefix, after)[:limit]


class MemoryDefinitions:
    """The `DefinitionStore` of a `MemoryJobStore`.

    Args:
        at_work: gives the model and the time, or says why there is none.
    """

    def __init__(self, at_work: Callable[[], tuple[CatalogueModel, int]]) -> None:
        self._at_work = at_work

    async def put(
        self, tenant: str, name: str, content: DefinitionContent, *, version: int | None = None, by: str = ""
    ) -> PutDefinition | None:
        model, now = self._at_work()
        return model.put(tenant, name, content, version=version, by=by, now=now)

    async def get(self, tenant: str, name: str, *, version: int | None = None) -> Definition | None:
        return self._at_work()[0].get(tenant, name, version=version)

    async def page(
        self, tenant: str, *, prefix: str = "", after: str | None = None, limit: int = 50
    ) -> DefinitionPage:
        return self._at_work()[0].page(tenant, prefix=prefix, after=after, limit=limit)

    async def versions(
        self, tenant: str, name: str, *, before: int | None = None, limit: int = 50
    ) -> list[Definition]:
        return self._at_work()[0].versions(tenant, name, before=before, limit=limit)

    async def delete(self, tenant: str, name: str, *, version: int | None = None) -> bool:
        return self._at_work()[0].delete(tenant, name, version=version)


class MemoryTasks:
    """The `TaskStore` of a `MemoryJobStore`; the argument is as that of `MemoryDefinitions`."""

    def __init__(self, at_work: Callable[[], tuple[CatalogueModel, int]]) -> None:
        self._at_work = at_work

    async def register(self, registrations: Sequence[TaskRegistration], *, origin: Origin, worker: str = "") -> None:
        model, now = self._at_work()
        model.register(registrations, origin=origin, worker=worker, now=now)

    async def registrations(self, tasks: Sequence[str]) -> list[RegisteredTask]:
        return self._at_work()[0].registrations(tasks)

    async def names(self, *, prefix: str = "", after: str | None = None, limit: int = 50) -> list[str]:
        return self._at_work()[0].names(prefix=prefix, after=after, limit=limit)


def _some(names: Iterable[str], prefix: str, after: str | None) -> list[str]:
    return sorted(name for name in names if name.startswith(prefix) and (after is None or name > after))
