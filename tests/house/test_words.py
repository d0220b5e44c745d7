"""The rule of one word per thing: duplicate names, replaced words, and words without a subject."""

import ast
import functools
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterator

from tests.house.tree import FOLDERS, ROOT, Module, classes, listed_names, modules, nodes

# Names of earlier builders; docs/glossary.md has their replacements.
_BANNED = {
    "bell", "board", "crew", "culprit", "desk", "ears", "errand", "fates", "guilty", "handover", "happening",
    "letterhead", "nudge", "papers", "plug", "pulse", "rehearsal", "seat", "seclusion", "shelf", "shelve", "standing",
    "tally", "understudy",
}  # fmt: skip
# A sentence with one of these has no subject that a reader can look up.
_INDEFINITE = re.compile(r"\b(nobody|somebody|whoever|anybody)('s)?\b", re.IGNORECASE).search
# A program reports, notifies, sends, or is called with something; "to tell apart" is plain English.
_TOLD = re.compile(
    r"\b(tells? of|told of|telling of|(is|are|was|were|be|been|being) told(?! (apart|from)))\b", re.IGNORECASE
).search


def test_no_class_name_is_used_twice_in_the_core() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module in modules():
        if module.name.startswith("taskmq.") and not module.is_suite:
            for found in classes(module):
                places[found.name].append(module.where)

    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_no_identifier_uses_a_replaced_word() -> None:
    found = {
        f"{module.where}: {name}"
        for module in modules()
        for name in _defined_classes(module)
        if _BANNED & set(_words(name))
    }

    assert found == set()


def _defined_classes(module: Module) -> set[str]:
    names = set(module.path.stem.split("."))
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.arg, ast.Name, ast.Attribute)
    for node in nodes(module.tree, *kinds):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                names.add(name)
            case _:
                pass
    return names


@functools.cache
def _words(name: str) -> list[str]:
    return [word.lower().removesuffix("s") for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)] + [
        word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    ]


def test_a_suppressed_lint_rule_has_its_reason_on_the_line() -> None:
    without = {
        f"{module.where}:{number}"
        for module in modules()
        for number, line in enumerate(module.source.splitlines(), 1)
        if re.search(r"#\s*noqa(:\s*[A-Z]+[0-9]+(,\s*[A-Z]+[0-9]+)*)?\s*$", line)
    }

    assert without == set()


def test_prose_names_its_subject() -> None:
    """Comments, docstrings, messages and pages name the worker, the caller, the scheduler; see docs/glossary.md."""
    assert _find_in_prose(_INDEFINITE) == set()


def test_programs_are_not_told_and_tell_of_nothing() -> None:
    """Programs are called, notified and sent to; they report, publish and return."""
    assert _find_in_prose(_TOLD) == set()


def _find_in_prose(finds: Callable[[str], re.Match[str] | None]) -> set[str]:
    """Return the matches of the pattern in the prose of modules and pages."""
    found = {
        f"{module.where}:{number}"
        for module in modules()
        if finds(module.source)
        for number, text in _prose(module)
        if finds(text)
    }
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return found | {
        f"{page.relative_to(ROOT)}:{number}"
        for page in pages
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if finds(line) and "::test_" not in line
    }


def _prose(module: Module) -> Iterator[tuple[int, str]]:
    """Return comments, docstrings and texts by their lines; not the texts of a suite, which are data of tests."""
    for token in tokenize.generate_tokens(io.StringIO(module.source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in nodes(module.tree, ast.Expr, ast.Constant):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text
            case ast.Constant(value=str(text)) if not module.is_suite:
                yield node.lineno, text
            case _:
                pass


def test_the_docstring_of_a_public_name_says_more_than_the_name() -> None:
    """The text has the effect, the result or the guarantee, or a reference to it; a private one may be short."""
    found = {
        f"{module.where}:{node.lineno}: {text}"
        for module in modules()
        for node in _public(module.tree, listed_names(module.tree))
        if len((text := (ast.get_docstring(node) or "").partition("\n\n")[0]).split()) in {1, 2, 3}
        # A reference: `See ...`, or the name of a contract.
        if not re.search(r"^See `|`\w+(\.\w+)+`| itself\.$", text)
    }

    assert found == set()


def _public(
    owner: ast.Module | ast.ClassDef, exported: set[str] | None
) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the public classes, functions and methods; None: all without an underscore."""
    for node in owner.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if not node.name.startswith("_") and (exported is None or node.name in exported) and not _is_registered(node):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from _public(node, None)


def _is_registered(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether this is a command or a handler, whose users see its help text or its operation and not its name."""
    return any(re.search(r"\.(command|handle)\b", ast.unparse(decorator)) for decorator in node.decorator_list)


def test_no_comment_is_a_banner() -> None:
    """A line of dashes marks a class that should be two, or nothing."""
    banner = re.compile(r"\s*#.*[-=~*#]{4,}\s*$")
    sources = [path for folder in (*FOLDERS, "tests", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))]
    found = {
        f"{path.relative_to(ROOT)}:{number}"
        for path in sources
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if banner.match(line)
    }

    assert len(sources) > 500
    assert found == set()
