"""``python -m transduce``, and the ``transduce`` command."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback even while it is still being imported."""
    try:
        from transduce.cli.main import main as run_command
    except KeyboardInterrupt:
        sys.stderr.write("error: interrupted\n")
        sys.exit(130)
    run_command()


if __name__ == "__main__":
    main()
