"""The command line: one file per noun, each imported only when its command runs.

Data goes to standard output, everything else to standard error. Exit codes are defined in `taskmq.cli.exits`.
"""

from collections.abc import Sequence

__all__ = ["run"]


def run(tokens: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    from taskmq.cli.root import run_command

    return run_command(tokens)
