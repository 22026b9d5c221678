"""Docstrings as the reference shows them (an extension of griffe, named in mkdocs.yml).

Examples become code blocks. After the first paragraph, lines such as `seed: of the sample` become a list.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
PARAMETER = re.compile(r"^((?:[a-z_]+, )*[a-z_]+): ", re.MULTILINE)


def as_markdown(text: str) -> str:
    first, _, rest = text.partition("\n\n")
    rest = PARAMETER.sub(lambda found: f"\n- **{found[1].replace(', ', '**, **')}**: ", rest)
    text = f"{first}\n\n{rest}".strip()
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)


class Docstrings(griffe.Extension):
    """Rewrites each docstring when it is loaded."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)
