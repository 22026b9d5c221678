"""What a rule file cannot say of itself: `rules.tsv.json` beside `rules.tsv` tells how it was made.

AnyBURL's format has no room for the graph, the options, or which counts are estimates.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from squire.core.files import replacing


@dataclass(frozen=True)
class Sidecar:
    """How a rule file was made."""

    graph: str  # path or name, as the user gave it
    options: dict[str, object] = field(default_factory=dict)
    complete: bool = True
    errors: dict[str, float] = field(default_factory=dict)  # rule, as text -> standard error of the confidence

    @staticmethod
    def path_of(rules: Path) -> Path:
        return rules.with_name(rules.name + ".json")

    def save(self, rules: Path) -> None:
        content = {
            "graph": self.graph,
            "options": self.options,
            "complete": self.complete,
            "estimated": self.errors,
        }
        with replacing(self.path_of(rules)) as temporary:
            temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def load(cls, rules: Path) -> Sidecar | None:
        """None if there is none, or none of ours: a rule file from elsewhere is as good."""
        try:
            content = json.loads(cls.path_of(rules).read_text(encoding="utf-8"))
            errors = {str(rule): float(error) for rule, error in content["estimated"].items()}
            return cls(str(content["graph"]), dict(content["options"]), bool(content["complete"]), errors)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
