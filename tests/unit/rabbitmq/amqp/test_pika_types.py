"""Private names of pika that taskmq uses: each exists, and each is listed."""

import ast
import inspect
import re
from pathlib import Path

import pika  # type: ignore[import-untyped]
import pytest

from taskmq_rabbitmq.amqp import pika_types

_CLASSES = ("PikaConnection", "PikaChannel", "PlainTransport", "HeartbeatChecker")
# The protocol of pika's sockets; the plain one fulfils it.
_SAME = {"Transport": "PlainTransport"}


def _declared_names() -> dict[str, set[str]]:
    """Return the private names that the module declares, by class."""
    tree = ast.parse(Path(inspect.getfile(pika_types)).read_text())
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            names = {
                each.name if isinstance(each, ast.FunctionDef) else ast.unparse(each.target)
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AnnAssign)
            }
            private = {name for name in names if name.startswith("_") and not name.startswith("__")}
            if private:
                found.setdefault(_SAME.get(node.name, node.name), set()).update(private)
    return found


def test_each_pika_class_with_private_names_is_listed() -> None:
    assert _declared_names().keys() == set(_CLASSES)


@pytest.mark.parametrize("name", _CLASSES)
def test_each_private_name_exists_in_the_installed_pika(name: str) -> None:
    kind = getattr(pika_types, name)
    source = "".join(inspect.getsource(each) for each in kind.__mro__ if each.__module__.startswith("pika"))

    missing = {
        each
        for each in _declared_names()[name]
        if not hasattr(kind, each) and re.search(rf"self\.{each}\b[^=\n]*=", source) is None
    }

    assert missing == set(), f"pika {pika.__version__}"


def test_the_module_lists_all_private_names() -> None:
    listed = set(re.findall(r"`(_\w+)`", inspect.getdoc(pika_types) or ""))

    assert listed == set().union(*_declared_names().values())
