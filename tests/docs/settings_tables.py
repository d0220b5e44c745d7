"""The tables of settings and of other variables, from `taskmq.client.settings`."""

from collections.abc import Callable, Mapping
from typing import Final

from taskmq.client.settings import OTHER_VARIABLES, Settings
from tests.docs.options_page import effect_and_default, texts_of


def _settings() -> str:
    lines = ["| variable | in the file | default | is |", "|---|---|---|---|"]
    for name, text in texts_of(Settings).items():
        if name != "origin":
            what, default = effect_and_default(text)
            lines.append(f"| `TASKMQ_{name.upper()}` | `{name}` | {default} | {what} |")
    return "\n".join(lines)


def _variables() -> str:
    rows = [f"| `{name}` | {text} |" for name, text in OTHER_VARIABLES.items()]
    return "\n".join(["| variable | read by, and for |", "|---|---|", *rows])


SETTING_TABLES: Final[Mapping[str, Callable[[], str]]] = {"settings": _settings, "variables": _variables}
