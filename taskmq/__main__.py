"""The `taskmq` command."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with its code."""
    from taskmq.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
