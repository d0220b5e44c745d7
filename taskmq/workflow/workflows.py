"""`app.workflows`: the named workflows that an app's code defines."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from taskmq.contracts.jobs import RunStore
from taskmq.errors import InvalidOption
from taskmq.model.envelope import check_task_name
from taskmq.model.runs.graphs import encode_workflow
from taskmq.workflow.named_workflow import NamedWorkflow


class Workflows(Mapping[str, NamedWorkflow[..., Any]]):
    """Named workflows of an app's code, by name.

    Args:
        load: imports the modules that the app includes.
    """

    def __init__(self, load: Callable[[], object]) -> None:
        self._load = load
        self._own: dict[str, NamedWorkflow[..., Any]] = {}

    def __getitem__(self, name: str) -> NamedWorkflow[..., Any]:
        self._load()
        return self._own[name]

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(self._own)

    def __len__(self) -> int:
        self._load()
        return len(self._own)

    def define(self, workflow: NamedWorkflow[..., Any]) -> None:
        """Add a workflow that the code defines.

        Raises:
            InvalidOption: the name is invalid or taken.
        """
        check_task_name(workflow.name)
        if workflow.name in self._own:
            raise InvalidOption(f"workflow {workflow.name!r} is defined twice; give one of them a name=")
        self._own[workflow.name] = workflow

    async def store_in(self, runs: RunStore) -> None:
        """Store the workflows. New content becomes the current version; known content changes nothing.

        Raises:
            StoreUnavailable: the store could not be reached.
        """
        for name, workflow in self.items():
            await runs.put_workflow("", name, encode_workflow(workflow.content)[1])
