"""One exception tree. Everything a user can cause ends in one of these, and its text is the whole message.

SquireError
├── DataError        an input file or folder that cannot become a graph (`file:line`, what, what to do)
├── UnknownName      an entity, relation or dataset that is not there, with the nearest that are
├── DownloadError    a benchmark that could not be fetched, whole and verified
├── RuleError        a rule file that cannot be read (`file:line`, what, what to do)
├── TrainingError    a run that cannot go on (step, why, what to do)
├── CheckpointError  a checkpoint that could not be written, or cannot be read (file, what, what to do)
└── SettingError     an option whose value makes no sense, naming the option
"""

from collections.abc import Sequence


class SquireError(Exception):
    """A mistake that the user can mend; the command line prints it without a traceback."""


class DataError(SquireError):
    """An input that cannot become a graph."""


class DownloadError(SquireError):
    """A benchmark that could not be fetched, whole and verified."""


class RuleError(SquireError):
    """A rule file that cannot be read."""


class TrainingError(SquireError):
    """A run that cannot go on."""


class CheckpointError(SquireError):
    """A checkpoint that could not be written, or cannot be read."""


class SettingError(SquireError):
    """An option whose value makes no sense."""


class UnknownName(SquireError):
    """A name that is not there; `nearest` holds the ones that are."""

    def __init__(self, kind: str, name: str, nearest: Sequence[str] = ()) -> None:
        self.kind, self.name, self.nearest = kind, name, tuple(nearest)
        hint = f" Nearest: {', '.join(repr(n) for n in self.nearest)}." if self.nearest else ""
        super().__init__(f"unknown {kind} {name!r}.{hint}")
