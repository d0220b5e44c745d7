"""The commands of one noun, such as `taskmq job`."""

from typing import Any

from cyclopts import App, ArgumentCollection, Parameter


class Noun(App):
    """An app of cyclopts that assembles the arguments of each command once.

    Cyclopts assembles the arguments of a function anew for each step of parsing and of printing help. Each time costs
    up to 5 ms for a command with many options. The arguments of a command do not depend on what was typed, so all
    runs in one process share them.

    Args:
        args: as those of cyclopts' `App`.
        options: as those of cyclopts' `App`. A command returns its exit code, unless `result_action` says otherwise.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"result_action": "return_value", **options})
        self._assembled: dict[bool, ArgumentCollection] = {}

    def assemble_argument_collection(
        self, *, default_parameter: Parameter | None = None, parse_docstring: bool = False
    ) -> ArgumentCollection:
        """Return the arguments of this app's function, without values."""
        if default_parameter is not None:
            return super().assemble_argument_collection(
                default_parameter=default_parameter, parse_docstring=parse_docstring
            )
        if parse_docstring not in self._assembled:
            self._assembled[parse_docstring] = super().assemble_argument_collection(parse_docstring=parse_docstring)
        return _copy_unset(self._assembled[parse_docstring])


def _copy_unset(arguments: ArgumentCollection) -> ArgumentCollection:
    """Return copies of the arguments without values; those of a group of flags refer to each other's copies."""
    copies = arguments.copy(reset_tokens=True)
    places = {id(argument): place for place, argument in enumerate(arguments)}
    for argument in copies:
        argument.children = argument.children.copy()
        argument.children[:] = [copies[places[id(child)]] for child in argument.children]
    return copies
