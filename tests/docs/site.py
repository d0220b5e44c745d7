"""`make docs`: the pages of `docs/` as a site with search, in `dist/docs/site`. Its menu is that of `docs/index.md`.

Beside it `llms.txt`, the same list for programs, and each page as Markdown.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[2]
_DOCS: Final = _ROOT / "docs"
_BUILD: Final = _ROOT / "dist" / "docs"
_LINK: Final = re.compile(r"\[([^\]]+)\]\(([^)#\s]+\.md)\)")
# Files outside docs/ are not pages of the site.
_OUTSIDE: Final = re.compile(r"\[([^\]]*)\]\((?:\.\./)+([^)]+)\)")
_NAMES: Final = {"glossary.md": "Words", "http.md": "HTTP", "rabbitmq.md": "RabbitMQ"}


def listed_pages() -> list[str]:
    """Return the pages linked by the index, in order."""
    return [path for _, text in _sections() for _, path in _LINK.findall(text)]


def menu() -> list[dict[str, Any]]:
    """Return the menu: the sections of the index with their pages."""
    sections = [{title: [{_title(path): path} for _, path in _LINK.findall(text)]} for title, text in _sections()]
    return [{"taskmq": "index.md"}, *sections]


def llms_text() -> str:
    """Return the index for programs (llmstxt.org): a description of taskmq, and each page with its subject."""
    summary = _index().partition("\n\n")[2].partition("\n\n")[0]
    body = "\n".join(f"## {title}\n\n{text.strip()}\n" for title, text in _sections())
    return f"# taskmq\n\n> {' '.join(summary.split())}\n\n{body}"


def _index() -> str:
    return (_DOCS / "index.md").read_text(encoding="utf-8")


def _sections() -> list[tuple[str, str]]:
    """Return the sections of the index, each with its text."""
    parts = re.split(r"^## (.+)$", _index(), flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def _title(path: str) -> str:
    if path in _NAMES:
        return _NAMES[path]
    first = (_DOCS / path).read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("# ").partition(":")[0]


def _build() -> Path:
    """Build the site; return its folder."""
    shutil.rmtree(_BUILD, ignore_errors=True)
    shutil.copytree(
        _DOCS, _BUILD / "docs", ignore=shutil.ignore_patterns("*.py", "*.toml", "__pycache__", "ISSUE_TEMPLATE")
    )
    for page in (_BUILD / "docs").rglob("*.md"):
        page.write_text(_OUTSIDE.sub(r"\1 (`\2`)", page.read_text(encoding="utf-8")), encoding="utf-8")
    settings = (_ROOT / ".ci" / "mkdocs.yml").read_text(encoding="utf-8")
    # JSON is valid YAML.
    (_BUILD / "mkdocs.yml").write_text(f"{settings}nav: {json.dumps(menu())}\n", encoding="utf-8")
    subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "-f", "mkdocs.yml"], cwd=_BUILD, check=True
    )
    site = _BUILD / "site"
    (site / "llms.txt").write_text(llms_text(), encoding="utf-8")
    for path in listed_pages():
        shutil.copyfile(_DOCS / path, site / path)
    return site


if __name__ == "__main__":
    print(_build())
