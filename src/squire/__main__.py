"""`python -m squire`: the same as the `squire` command, for launchers that take a module."""

from squire.cli import main

main()
