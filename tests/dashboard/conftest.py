from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.dashboard.kit import Eyes, Served, browsing, serving, watching


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as opened:
        yield opened


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """An app without a sign-in; the tests of a module share it and use unique names."""
    folder: Path = tmp_path_factory.mktemp("site")
    with serving(folder, development=True) as served:
        yield served


@pytest.fixture
def eyes(browser: Browser, site: Served) -> Iterator[Eyes]:
    with watching(browser, site) as watched:
        yield watched
