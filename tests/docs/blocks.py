"""The code blocks of the repository's Markdown files."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = (README, *sorted((ROOT / "docs").rglob("*.md")))

_BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    language: str
    text: str

    @property
    def file_name(self) -> str | None:
        """Return the name in a first line such as `# shop.py` or `# orders/models.py`."""
        found = re.match(r"# ((?:\w+/)*\w+\.py)\n", self.text)
        return found[1] if found else None

    @property
    def commands(self) -> list[str]:
        """Return the text after `$` in a console block."""
        return [line.removeprefix("$ ") for line in self.text.splitlines() if line.startswith("$ ")]

    @property
    def output(self) -> str:
        """Return the lines without `$`."""
        return "".join(line for line in self.text.splitlines(keepends=True) if not line.startswith("$ "))


def blocks_of(page: Path) -> list[Block]:
    return [Block(found["language"], found["text"]) for found in _BLOCK.finditer(page.read_text())]


def block_after(page: Path, file_name: str) -> Block:
    """Return the block after the one of this file."""
    blocks = blocks_of(page)
    (position,) = [number for number, block in enumerate(blocks) if block.file_name == file_name]
    return blocks[position + 1]


def write_files(page: Path, folder: Path) -> set[str]:
    """Write each block whose first line names a file to that file; return their names."""
    named = {block.file_name: block.text for block in blocks_of(page) if block.file_name is not None}
    for name, text in named.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return set(named)
