"""Which model a study is of: so that what was noted of one is never continued with another."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open

from squire.errors import CheckpointError, SettingError
from squire.files import BEST, LAST

DIGITS = 12


def fingerprint(folder: Path) -> str:
    """The first digits of the checksum of the model that `Run.load` takes. Reads nothing but the file's header."""
    for name in (BEST, LAST):
        file = folder / f"{name}.safetensors"
        if file.exists():
            try:
                with safe_open(file, framework="numpy") as content:
                    return str(content.metadata()["sha256"][:DIGITS])
            except (SafetensorError, KeyError, TypeError) as error:
                raise CheckpointError(
                    f"{file}: not a checkpoint ({error}). To do: restore it, or train anew."
                ) from None
    raise SettingError(f"{folder}: no model here. To do: make one with 'squire train GRAPH --out {folder}'.")
