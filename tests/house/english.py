"""The shape of prose and of names, counted by package: `python -m tests.house.english` renews the limits."""

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.house.tree import Module, functions, modules, modules_of_tests, nodes

LIMITS = Path(__file__).parent / "english_limits.txt"

# A docstring with one of these at its beginning is a clause, or has no subject.
_OPENERS = {
    "what", "which", "who", "whom", "whose", "why", "how", "when", "whenever", "where", "whatever", "whoever",
    "those", "these", "that", "such", "it", "its", "they", "their", "there", "one", "one's", "all", "some",
    "something", "nothing", "none", "so", "of", "for", "from", "in", "by", "to", "with", "without", "as", "since",
    "beside", "behind", "into", "over", "under", "below",
}  # fmt: skip
_IRREGULAR = {
    "begun", "bound", "brought", "built", "cut", "done", "found", "given", "gone", "held", "kept", "known", "left",
    "lost", "made", "met", "put", "read", "said", "seen", "sent", "shown", "taken", "told", "tried", "written",
} - {"cut", "put", "read"}  # fmt: skip
# Verbs that end like participles.
_VERBS = {"bleed", "embed", "exceed", "feed", "heed", "need", "proceed", "seed", "shed", "speed", "succeed", "wed"}
_EXAMPLES = {"shown": "build_report, not _told; find_large_value, not _lightened; is_confirmed, not known"}


def clauses(module: Module) -> Iterator[tuple[int, str]]:
    """Find docstrings whose first word is neither a verb nor part of a noun phrase; yield line and text."""
    for node in (module.tree, *nodes(module.tree, ast.ClassDef), *functions(module.tree)):
        text = ast.get_docstring(node) or ""
        first = re.match(r"[A-Za-z']+", text)
        if first and first[0].lower() in _OPENERS:
            yield getattr(node, "lineno", 1), text.partition("\n")[0]


def participles(module: Module) -> Iterator[tuple[int, str]]:
    """Find functions whose whole name is a participle; a property may be one, as in asyncio, and so may a task."""
    for node in functions(module.tree):
        name = node.name.strip("_").lower()
        is_participle = name in _IRREGULAR or (re.fullmatch(r"[a-z]+ed", name) and name not in _VERBS)
        if is_participle and not _is_exempt(node):
            yield node.lineno, node.name


def _is_exempt(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(re.search(r"property|\.setter|\btask\b", ast.unparse(decorator)) for decorator in node.decorator_list)


def package_of(module: Module) -> str:
    """Return the first two parts of the path: the module's row in the table."""
    return "/".join(Path(module.where).parts[:2])


@functools.cache
def find_all() -> dict[str, dict[str, list[str]]]:
    """Return the findings of each kind in each package with any."""
    places: dict[str, dict[str, list[str]]] = {}
    for module in (*modules(), *modules_of_tests()):
        for kind, finds in (("clauses", clauses), ("participles", participles)):
            for line, text in finds(module):
                rows = places.setdefault(package_of(module), {"clauses": [], "participles": []})
                rows[kind].append(f"{module.where}:{line}: {text}")
    return places


def limits() -> dict[str, Counter[str]]:
    """Read the exceptions that each package may have."""
    rows = [line.split() for line in LIMITS.read_text().splitlines() if line and not line.startswith("#")]
    return {package: Counter(clauses=int(some), participles=int(others)) for package, some, others in rows}


def write() -> None:
    """Write the current counts as limits; if a count rose, rewrite the prose instead."""
    rows = {package: {kind: len(each) for kind, each in kinds.items()} for package, kinds in find_all().items()}
    lines = [f"{package} {counts['clauses']} {counts['participles']}" for package, counts in sorted(rows.items())]
    head = [
        "# Docstrings that begin with a clause, and functions named by a participle, that a package may have.",
        "# They only fall; `python -m tests.house.english` writes them anew after a rewrite.",
    ]
    LIMITS.write_text("\n".join([*head, *lines]) + "\n")


if __name__ == "__main__":
    write()
