"""Definitions of jobs, and the tasks they may call."""

from collections.abc import Sequence
from contextlib import suppress

import msgspec
from msgspec import structs

from taskmq.api.definitions import DefinitionBody, DefinitionList, DefinitionView
from taskmq.api.workers import TaskList, TaskView
from taskmq.app_api.caller import AppCalls
from taskmq.app_api.jobs.orders import options_of
from taskmq.app_api.views import instant_text, render_all
from taskmq.contracts.jobs import Catalogued
from taskmq.errors import DefinitionNotFound, UnknownTask
from taskmq.model.identity import Permission
from taskmq.model.jobs.definitions import Definition
from taskmq.model.jobs.registrations import RegisteredTask, TaskRegistration
from taskmq.tasks.registration import registration_of_task, registrations_of


class AppDefinitions(AppCalls):
    """Definitions: named, versioned templates of jobs.

    Methods raise `DefinitionNotFound`, and `DefinitionConflict` if the version differs. Changes raise `NotPermitted`
    if the caller may not call the task.
    """

    async def put(self, name: str, body: DefinitionBody, *, version: int | None = None) -> DefinitionView:
        task = body.task
        self._check_permission(task)
        await self._check_options(body, task)
        with suppress(DefinitionNotFound):
            self._check_permission((await self._app.definitions.aget(name, tenant=self._tenant)).content.task)
        await self._caller.note_action(self._app, "definition.put", subject=name, after={"task": task})
        made = await self._app.definitions.aput(
            name,
            task,
            args=body.args,
            kwargs=body.kwargs,
            tenant=self._tenant,
            version=version,
            by=self._caller.name,
            **options_of(body),
        )
        return _view(made)

    async def get(self, name: str, *, version: int | None = None) -> DefinitionView:
        return _view(await self._app.definitions.aget(name, tenant=self._tenant, version=version))

    async def versions(self, name: str, *, before: int | None = None, limit: int = 50) -> Sequence[DefinitionView]:
        found = await self._app.definitions.aversions(name, tenant=self._tenant, before=before, limit=limit)
        return render_all(_view, found)

    async def delete(self, name: str, *, version: int | None = None) -> None:
        task = (await self._app.definitions.aget(name, tenant=self._tenant)).content.task
        self._check_permission(task)
        await self._caller.note_action(self._app, "definition.delete", subject=name, after={"task": task})
        await self._app.definitions.adelete(name, tenant=self._tenant, version=version)

    async def page(self, prefix: str = "", *, limit: int = 50, cursor: str | None = None) -> DefinitionList:
        page = await self._app.definitions.alist(prefix, tenant=self._tenant, after=cursor or None, limit=limit)
        return DefinitionList(render_all(_view, page.definitions), page.after)

    @property
    def _tenant(self) -> str:
        return self._caller.tenant or ""


class AppTasks(AppCalls):
    """Tasks that can be called: the app's, and those registered by workers and schedulers."""

    async def get(self, name: str) -> TaskView:
        own = self._app.tasks.get(name)
        found = await self._app.jobs.catalogue.afind(name) if self._is_catalogued else None
        if own is None and found is None:
            raise UnknownTask(f"task {name[:128]!r} not found")
        return self._view(None if own is None else registration_of_task(own), found)

    async def page(self, prefix: str = "", *, limit: int = 50, cursor: str | None = None) -> TaskList:
        after = cursor or ""
        own = {
            one.task: one
            for one in registrations_of(self._app.tasks)
            if one.task > after and one.task.startswith(prefix)
        }
        found = {one.registration.task: one for one in await self._read_catalogue(prefix, after, limit + 1)}
        names = sorted({*own, *found})
        page = [self._view(own.get(name), found.get(name)) for name in names[:limit]]
        return TaskList(page, names[limit - 1] if len(names) > limit else None)

    async def _read_catalogue(self, prefix: str, after: str, limit: int) -> Sequence[RegisteredTask]:
        if not self._is_catalogued:
            return []
        return (await self._app.jobs.catalogue.alist(prefix, after=after or None, limit=limit)).tasks

    @property
    def _is_catalogued(self) -> bool:
        return isinstance(self._app.sessions.current().store, Catalogued)

    def _view(self, own: TaskRegistration | None, found: RegisteredTask | None) -> TaskView:
        """Build the API's view of a task, from the app or its registration."""
        shown = own or (None if found is None else found.registration)
        assert shown is not None
        # They may name other tenants and parts of the installation.
        tells_all = self._caller.may(Permission.JOBS_READ, None)
        return TaskView(
            name=shown.task,
            queue=shown.queue,
            description=shown.description,
            is_own=own is not None,
            positional=list(shown.positional),
            rest=shown.rest,
            arguments=msgspec.json.decode(shown.schema),
            first=None if found is None else instant_text(found.first),
            registered=None if found is None else instant_text(found.last),
            by=found.worker if found is not None and tells_all else "",
            origin=found.origin if found is not None and tells_all else "",
            options=msgspec.to_builtins(shown.facts) if tells_all else None,
        )


def _view(definition: Definition) -> DefinitionView:
    content = definition.content
    fields = {name: value for name, value in structs.asdict(content).items() if value not in (None, "", {})}
    if content.expires is not None:
        fields["expires_in"] = content.expires / 1000
    facts = {**fields, **structs.asdict(definition), "at": instant_text(definition.at)}
    shown = {name: facts[name] for name in DefinitionView.__struct_fields__ if name in facts}
    return msgspec.convert(shown, DefinitionView)
