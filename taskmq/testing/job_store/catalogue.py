"""Model of definitions over dictionaries: the reference for random histories."""

from collections import defaultdict
from collections.abc import Iterable

from taskmq.contracts.jobs import DefinitionPage, PutDefinition
from taskmq.model.jobs.definitions import Definition, DefinitionContent, decode_content, encode_content


class CatalogueModel:
    """The contract `DefinitionStore` without awaits, at the caller's time."""

    def __init__(self) -> None:
        self._versions: defaultdict[tuple[str, str], list[Definition]] = defaultdict(list)
        self._deleted: set[tuple[str, str]] = set()

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


def _some(names: Iterable[str], prefix: str, after: str | None) -> list[str]:
    return sorted(name for name in names if name.startswith(prefix) and (after is None or name > after))
