"""The `taskmq` command."""

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    if sys.argv[1:2] == ["probe"]:
        # Containers run the probe constantly: it does not load what other commands need.
        from taskmq.probe import main as probe

        sys.exit(probe(sys.argv[2:]))
    from taskmq.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
