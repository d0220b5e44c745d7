from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.server.kit import Site, open_site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with open_site(tmp_path) as opened:
        yield opened
