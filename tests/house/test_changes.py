"""The shape of the changelog, and the subjects of the last commits; docs/contributing.md has the rules."""

import re
import subprocess
from itertools import pairwise

from tests.house.tree import ROOT

# Earlier commits had other subjects.
_SINCE = "a6aa2261f3e381b1fbf0e7dc4ea1e8369f814ff7"
_AREAS = (
    "app", "bench", "build", "ci", "cli", "client", "dashboard", "deploy", "docs", "local", "rabbitmq", "redis",
    "scheduler", "schedules", "security", "server", "store", "tests", "worker", "workflow",
)  # fmt: skip
_SUBJECT = re.compile(rf"({'|'.join(_AREAS)}): (?=\S)(?!.*\.$)")
_SECTION = re.compile(r"## \d+\.\d+\.\d+ (- \d{4}-\d\d-\d\d|\(unreleased\))")
_GROUPS = ["### Added", "### Changed", "### Fixed", "### Removed", "### Security"]


def _git(*words: str) -> str:
    """Run git in the tree. Returns nothing where git or the history is missing, as in an unpacked sdist."""
    if not (ROOT / ".git").exists():
        return ""
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True, timeout=20
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout


def _subjects() -> list[str]:
    """Collect the subjects of at most 100 commits; a shallow clone may lack the commit that they follow."""
    log = ("log", "--no-merges", "--max-count=100", "--format=%s")
    return (_git(*log, f"{_SINCE}..HEAD") if _git("cat-file", "-t", _SINCE) else _git(*log)).splitlines()


def test_the_last_commits_name_their_area_and_what_they_do() -> None:
    odd = [subject for subject in _subjects() if len(subject) > 72 or _SUBJECT.match(subject) is None]

    assert odd == []


def _sections() -> list[tuple[str, list[str]]]:
    """Split the changelog into its versions, each with the lines below its heading."""
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("## ")]
    return [(lines[start], lines[start + 1 : end]) for start, end in pairwise([*starts, len(lines)])]


def test_each_version_of_the_changelog_fits_on_two_pages() -> None:
    assert {heading: len(lines) for heading, lines in _sections() if len(lines) > 120} == {}


def test_only_the_newest_version_of_the_changelog_is_unreleased() -> None:
    headings = [heading for heading, _ in _sections()]

    assert [heading for heading in headings if _SECTION.fullmatch(heading) is None] == []
    assert [heading for heading in headings[1:] if heading.endswith("(unreleased)")] == []


def test_a_version_of_the_changelog_has_the_usual_groups_in_their_order() -> None:
    for heading, lines in _sections():
        groups = [line for line in lines if line.startswith("### ")]
        assert groups == [group for group in _GROUPS if group in groups], heading


def test_each_entry_of_the_changelog_is_one_line_of_at_most_160_characters() -> None:
    lines = [line for _, lines in _sections() for line in lines]

    assert [line for line in lines if len(line) > 160 or line.startswith(" ")] == []
    assert [line for line in lines if line.startswith("- ") and not line.endswith(".")] == []
