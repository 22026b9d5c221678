"""Link prediction that a person can read and trust."""

from typing import TYPE_CHECKING

from squire.core.version import __version__
from squire.graph.graph import Graph
from squire.graph.loading import check_graph, load_graph, write_graph
from squire.rules.anyburl import read_rules, write_rules
from squire.rules.application import RuleEngine
from squire.rules.mining import MiningOptions, mine_rules

if TYPE_CHECKING:
    from squire.reasoning.reasoner import Reasoner


__all__ = [
    "Graph",
    "MiningOptions",
    "Reasoner",
    "RuleEngine",
    "__version__",
    "check_graph",
    "load_graph",
    "mine_rules",
    "read_rules",
    "write_graph",
    "write_rules",
]


def __getattr__(name: str) -> object:
    """`Reasoner` only when asked for: torch takes a second that a look at a graph should not wait for."""
    if name == "Reasoner":
        from squire.reasoning.reasoner import Reasoner

        return Reasoner
    raise AttributeError(f"module 'squire' has no attribute {name!r}")
