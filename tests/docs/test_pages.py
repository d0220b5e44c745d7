"""Links and examples of `docs/`."""

import ast
import re
import shlex
import subprocess
from datetime import timedelta
from functools import cache
from pathlib import Path

import pytest

from tests.cli.kit import Started, exists, names_in
from tests.docs.blocks import PAGES, ROOT, blocks_of
from tests.servers import eventually

_LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")
_PLACE = re.compile(r"\]\(([^)#\s:]*)#([^)\s]+)\)")
_PATH = re.compile(r"`((?:taskmq|brokers|contrib|tests|docs|benchmarks)/[\w./]+)`")
_TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")


def _mentions() -> list[tuple[Path, Path]]:
    """Return each page with each file of the repository that it links to or names."""
    found: list[tuple[Path, Path]] = []
    for page in PAGES:
        text = page.read_text()
        found += [(page, page.parent / target) for target in _LINK.findall(text)]
        found += [(page, ROOT / target) for target in _PATH.findall(text)]
    return found


def test_every_reference_of_a_page_exists() -> None:
    mentions = _mentions()

    assert len(mentions) > 500
    assert [f"{page.relative_to(ROOT)} refers to {target}" for page, target in mentions if not target.exists()] == []


@cache
def _places(page: Path) -> set[str]:
    """Return the headings of a page as link targets."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    texts = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", text).replace(" ", "-") for text in texts}


def test_every_linked_heading_exists() -> None:
    for page in PAGES:
        for target, place in _PLACE.findall(page.read_text()):
            known = _places((page.parent / target).resolve() if target else page)
            assert place in known, f"{page.relative_to(ROOT)} links to {target}#{place}"


@cache
def _functions(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_test_named_by_a_page_exists() -> None:
    for page in PAGES:
        for file, name in _TEST.findall(page.read_text()):
            assert name in _functions(file), f"{page.name}: {file} has no {name}"


def test_no_page_has_trailing_blanks_or_tabs() -> None:
    for page in PAGES:
        for number, line in enumerate(page.read_text().splitlines(), 1):
            assert line == line.rstrip(), f"{page.name}:{number}"
            assert "\t" not in line, f"{page.name}:{number}"


_SHOP = """\
from pathlib import Path

from taskmq import TaskMQ

app = TaskMQ()


@app.task(queue="images")
def resize(photo: int) -> None:
    Path(f"photo-{photo}").touch()
"""


@pytest.mark.rabbitmq
def test_the_amqp_publish_example_of_the_wire_format_runs_a_task(tmp_path: Path, amqp_url: str) -> None:
    (command,) = [
        command
        for block in blocks_of(ROOT / "docs" / "wire.md")
        for command in block.commands
        if command.startswith("amqp-publish")
    ]
    words = [word.replace("amqp://guest:guest@localhost", amqp_url) for word in shlex.split(command)]
    (tmp_path / "shop.py").write_text(_SHOP)

    with Started(tmp_path, "worker", "shop:app", env={"TASKMQ_URL": amqp_url}) as worker:
        worker.says("waiting for jobs")
        subprocess.run(words, check=True, timeout=20)
        eventually((tmp_path / "photo-7").exists, "the task's effect", within=timedelta(seconds=40))

    assert names_in("images", url=amqp_url) == []
    assert not exists("images.dlq", url=amqp_url), "no job has died"
    assert names_in("taskmq.parking", url=amqp_url) == []


def test_the_header_names_of_the_wire_format_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "wire.md").read_text()
    row = re.findall(r"^\| (`(?:x-taskmq)?-[^|]+) \|", page, re.MULTILINE)
    documented = {
        name if name.startswith("x-taskmq") else f"x-taskmq{name}"
        for cell in row
        for name in re.findall(r"`([^`]+)`", cell)
    }
    source = "\n".join(
        path.read_text()
        for folder in ("taskmq", "brokers")
        for path in (ROOT / folder).rglob("*.py")
    )  # fmt: skip

    assert len(documented) > 8
    for name in documented:
        # Some consist of the prefix and the rest.
        assert name in source or re.search(rf'[}}"]{re.escape(name.removeprefix("x-taskmq-"))}"', source), name


def test_the_reasons_of_dead_letters_in_the_wire_format_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "wire.md").read_text()
    sentence = page.partition("Reasons on a dead letter:")[2].partition("\n\n")[0]
    source = "\n".join(path.read_text() for path in (ROOT / "taskmq").rglob("*.py"))

    reasons = re.findall(r"`(\w+)`", sentence)
    assert len(reasons) >= 6
    for reason in reasons:
        assert f'"{reason}"' in source, reason
