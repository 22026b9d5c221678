"""The exception tree. Whatever a user can cause ends in one of these, and its text is the whole message.

SquireError
├── DataError        an input file or folder that cannot become a graph (`file:line`, what, what to do)
├── UnknownName      an entity, relation or dataset that does not exist, with the nearest ones
├── DownloadError    a benchmark that could not be downloaded and verified
├── RuleError        a rule file that cannot be read (`file:line`, what, what to do)
├── TrainingError    a run that cannot continue (step, why, what to do)
├── CheckpointError  a checkpoint that could not be written or read (file, what, what to do)
└── SettingError     a parameter whose value makes no sense, naming the parameter

Interrupted, a KeyboardInterrupt, is raised after Ctrl-C once everything done so far is saved.
"""

from collections.abc import Sequence


class SquireError(Exception):
    """A mistake that the user can correct. The command line prints it without a traceback."""


class DataError(SquireError):
    """An input that cannot become a graph."""


class DownloadError(SquireError):
    """A benchmark that could not be downloaded and verified."""


class RuleError(SquireError):
    """A rule file that cannot be read."""


class TrainingError(SquireError):
    """A run that cannot continue."""


class CheckpointError(SquireError):
    """A checkpoint that could not be written or read."""


class SettingError(SquireError):
    """A parameter whose value makes no sense."""


class UnknownName(SquireError):
    """A name that does not exist; `nearest` holds the most similar ones."""

    def __init__(self, kind: str, name: str, nearest: Sequence[str] = ()) -> None:
        self.kind, self.name, self.nearest = kind, name, tuple(nearest)
        hint = f" Nearest: {', '.join(repr(n) for n in self.nearest)}." if self.nearest else ""
        super().__init__(f"unknown {kind} {name!r}.{hint}")


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, after which everything done so far is saved; the text says how to continue."""
