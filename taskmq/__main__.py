"""The `taskmq` command."""

import gc
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    if sys.argv[1:2] == ["probe"]:
        # Containers run the probe constantly: it does not load what other commands need.
        from taskmq.probe import main as probe

        sys.exit(probe(sys.argv[2:]))
    # These modules stay: the collector would scan them again and again meanwhile, and several times at the exit.
    gc.disable()
    from taskmq.cli.root import run_command

    gc.freeze()
    gc.enable()
    sys.exit(run_command(sys.argv[1:]))


if __name__ == "__main__":
    main()
