"""The `squire` command, and `python -m squire` for launchers that take a module.

Nothing is imported here before Ctrl-C is handled, since imports take the first second of every command.
"""

import os
import signal


def main() -> None:
    """Run the command line. Ctrl-C ends the program quietly even while modules are being imported."""
    before = signal.signal(signal.SIGINT, _quit)
    from squire.cli import main as run

    signal.signal(signal.SIGINT, before)
    run()


def _quit(*_: object) -> None:
    """End at once: an exception could be caught or replaced by the module that is being imported."""
    os.write(2, b"interrupted\n")  # standard error
    os._exit(130)


if __name__ == "__main__":
    main()
