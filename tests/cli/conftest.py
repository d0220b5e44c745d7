import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.kit import SHOP, Here


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder without settings; modules that are imported from it are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("TASKMQ_") and not name.startswith("TASKMQ_TEST_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    path = list(sys.path)
    yield tmp_path
    sys.path[:] = path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def shop(home: Path) -> Path:
    """A current folder with `shop.py`."""
    (home / "shop.py").write_text(SHOP)
    return home


@pytest.fixture
def taskmq(home: Path, capsys: pytest.CaptureFixture[str]) -> Here:
    """Runs commands in this process."""
    return Here(capsys)
