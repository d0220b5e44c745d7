"""The `taskmq` command."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with its code."""
    if sys.argv[1:2] == ["probe"]:
        # Containers run it all the time: it does not load what the other commands need.
        from taskmq.probe import main as probe

        sys.exit(probe(sys.argv[2:]))
    if _runs_worker(sys.argv[1:]):
        from taskmq import head_start

        head_start.begin()
    from taskmq.cli import run

    sys.exit(run(sys.argv[1:]))


def _runs_worker(tokens: list[str]) -> bool:
    """Whether it looks so; it does not matter much if that is wrong."""
    first = next((token for token in tokens if not token.startswith("-")), "")
    return first in ("worker", "dev") and not {"--help", "-h", "--version"}.intersection(tokens)


if __name__ == "__main__":
    main()
