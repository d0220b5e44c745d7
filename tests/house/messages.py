"""The log lines, error texts and help texts on one page, for a reviewer: `python -m tests.house.messages`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.tree import Module, modules, nodes

PAGE = Path(__file__).parent / "messages.txt"
# A part in braces, as `ast.unparse` writes it: an f-string with any quotes.
_FORMATTED = re.compile(r"""^f('''|\"{3}|'|\")(.*)\1$""", re.DOTALL)
_LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}


def page() -> str:
    """Return each module with texts, and its texts in order; without line numbers, which move."""
    parts = []
    for module in modules():
        if not module.is_suite and (texts := sorted(_texts(module))):
            parts.append("\n".join([module.where, *(f"  {kind}: {text}" for _, kind, text in texts)]))
    return "\n\n".join(parts) + "\n"


def _texts(module: Module) -> Iterator[tuple[tuple[int, int], str, str]]:
    for node in nodes(module.tree, ast.Call, ast.Raise, ast.keyword, ast.FunctionDef, ast.AsyncFunctionDef):
        match node:
            case ast.Call(func=ast.Attribute(attr=level), args=[first, *_]) if level in _LEVELS:
                yield from _pieces(first, f"log {level}")
            case ast.Raise(exc=ast.Call(func=raised) as call):
                yield from _pieces(call, f"raise {ast.unparse(raised).rpartition('.')[2]}")
            case ast.Call(func=ast.Name(id="note"), args=[first, *_]):
                yield from _pieces(first, "note")
            case ast.keyword(arg="help", value=value):
                yield from _pieces(value, "help")
            case ast.FunctionDef() | ast.AsyncFunctionDef() if _is_command(module, node):
                yield (node.lineno, 0), "help", " / ".join((ast.get_docstring(node) or "").split("\n"))
            case _:
                pass


def _pieces(node: ast.expr, kind: str) -> Iterator[tuple[tuple[int, int], str, str]]:
    """Return the texts in an expression that contain a space; the others are names."""
    match node:
        case ast.Constant(value=str(text)):
            if " " in text.strip():
                yield (node.lineno, node.col_offset), kind, " ".join(text.split())
        case ast.JoinedStr(values=values):
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else _FORMATTED.sub(r"\2", ast.unparse(part))
                for part in values
            )
            yield (node.lineno, node.col_offset), kind, " ".join(text.split())
        case _:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr | ast.keyword):
                    yield from _pieces(child.value if isinstance(child, ast.keyword) else child, kind)


def _is_command(module: Module, node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return module.name.startswith("taskmq.cli") and any(
        ast.unparse(decorator).partition("(")[0].endswith((".command", ".default"))
        for decorator in node.decorator_list
    )


def write() -> None:
    """Write the page again."""
    PAGE.write_text(page())


if __name__ == "__main__":
    write()
