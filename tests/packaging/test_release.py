"""A release: refusals, written files, and a complete one."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.release import ReleaseRefused, next_version, release, with_released_section, with_version

_ROOT = Path(__file__).parents[2]
_CHANGELOG = "# Changelog\n\n## 0.2.0 (unreleased)\n\n### Added\n\n- A thing.\n\n## 0.1.0 - 2026-01-02\n\n- Old.\n"


def _git(*words: str, cwd: Path) -> str:
    settings = ("-c", "user.name=Test", "-c", "user.email=test@example.com")
    return subprocess.run(["git", *settings, *words], cwd=cwd, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("wanted", ["0.1.4", "0.2.0", "1.0.0"])
def test_the_next_version_raises_one_part_and_resets_those_behind_it(wanted: str) -> None:
    assert next_version("0.1.3", wanted) == wanted


@pytest.mark.parametrize("wanted", ["0.1.3", "0.1.5", "0.2.1", "2.0.0", "1.0", "v0.2.0", "0.2.0rc1"])
def test_any_other_version_is_refused(wanted: str) -> None:
    with pytest.raises(ReleaseRefused, match=r"X\.Y\.Z|does not follow"):
        next_version("0.1.3", wanted)


def test_a_version_is_written_in_its_known_locations_and_nowhere_else() -> None:
    text = 'name = "a"\nversion = "0.1.0"\nother = "0.1.0"\n'

    assert with_version(text, r'(?m)^version = "(.+)"$', "0.2.0") == text.replace(
        'version = "0.1.0"', 'version = "0.2.0"'
    )
    with pytest.raises(ReleaseRefused, match="0 places"):
        with_version(text, r'(?m)^VERSION = "(.+)"$', "0.2.0")


def test_the_unreleased_section_gets_a_version_and_a_day() -> None:
    released = with_released_section(_CHANGELOG, "0.2.0", "2026-11-25")

    assert released.startswith("# Changelog\n\n## 0.2.0 - 2026-11-25\n\n### Added\n\n- A thing.\n\n## 0.1.0 - ")
    with pytest.raises(ReleaseRefused, match="write down"):
        with_released_section(released, "0.3.0", "2026-11-26")


def test_an_empty_unreleased_section_is_refused() -> None:
    with pytest.raises(ReleaseRefused, match="write down"):
        with_released_section(
            "# Changelog\n\n## 0.2.0 (unreleased)\n\n## 0.1.0 - 2026-01-02\n", "0.2.0", "2026-11-25"
        )


def test_a_tree_with_changes_is_not_released(tmp_path: Path) -> None:
    _git("init", "--quiet", cwd=tmp_path)
    (tmp_path / "new.py").touch()

    with pytest.raises(ReleaseRefused, match="has changes"):
        release("0.2.0", root=tmp_path, interpreters=[])


def test_a_release_that_cannot_be_built_leaves_everything_unchanged(tmp_path: Path) -> None:
    files = {
        "pyproject.toml": '[project]\nversion = "0.1.0"\n[build-system]\nbuild-backend = "missing"\n',
        "taskmq/version.py": 'VERSION: Final = "0.1.0"\n',
        "uv.lock": '[[package]]\nname = "taskmq"\nversion = "0.1.0"\n',
        "CHANGELOG.md": _CHANGELOG,
        ".gitignore": "dist/\n",
    }
    (tmp_path / "taskmq").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    _git("init", "--quiet", cwd=tmp_path)
    _git("add", ".", cwd=tmp_path)
    _git("commit", "--quiet", "--message", "begin", cwd=tmp_path)

    with pytest.raises(subprocess.CalledProcessError):
        release("0.2.0", root=tmp_path, interpreters=[])

    assert {name: (tmp_path / name).read_text() for name in files} == files
    assert _git("tag", cwd=tmp_path) == ""


@pytest.mark.campaign
@pytest.mark.timeout(600)
def test_a_release_is_built_tried_committed_and_tagged(tmp_path: Path) -> None:
    """Install the wheel, the file for the package index, into an empty environment."""
    root = tmp_path / "clone"
    _git("clone", "--quiet", str(_ROOT), str(root), cwd=tmp_path)
    for name, value in (("user.name", "Test"), ("user.email", "test@example.com")):
        _git("config", name, value, cwd=root)

    files = release("0.1.0", root=root, interpreters=[Path(sys.executable)])

    assert sorted(path.suffix for path in files) == [".gz", ".whl"]
    assert _git("tag", cwd=root).split() == ["v0.1.0"]
    assert _git("status", "--porcelain", cwd=root) == ""
    assert "build: release 0.1.0" in _git("log", "-1", cwd=root)
