"""Link prediction that a person can read and trust."""

from typing import TYPE_CHECKING

from squire.graph.graph import Graph
from squire.graph.io import Holdout, check_graph, load_graph, write_graph
from squire.graph.readers import ReadOptions
from squire.rules.apply import RuleEngine
from squire.rules.mine import MiningOptions, mine_rules
from squire.rules.text import read_rules, write_rules
from squire.version import __version__

if TYPE_CHECKING:
    from squire.reasoner import Reasoner


__all__ = [
    "Graph",
    "Holdout",
    "MiningOptions",
    "ReadOptions",
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
        from squire.reasoner import Reasoner

        return Reasoner
    raise AttributeError(f"module 'squire' has no attribute {name!r}")
