from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.kit import SHOP, Here, inside


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Change into an empty folder without settings; forget modules imported from it afterwards."""
    with inside(tmp_path):
        yield tmp_path


@pytest.fixture
def shop(home: Path) -> Path:
    """Change into a folder with `shop.py`."""
    (home / "shop.py").write_text(SHOP)
    return home


@pytest.fixture
def taskmq(home: Path, capsys: pytest.CaptureFixture[str]) -> Here:
    """Run commands in this process."""
    return Here(capsys)
