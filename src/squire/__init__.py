"""Link prediction that a person can read and trust."""

from squire.graph.graph import Graph
from squire.graph.io import Holdout, check_graph, load_graph, write_graph
from squire.graph.readers import ReadOptions
from squire.rules.apply import RuleEngine
from squire.rules.mine import MiningOptions, mine_rules
from squire.rules.text import read_rules, write_rules

__version__ = "0.1.0"

__all__ = [
    "Graph",
    "Holdout",
    "MiningOptions",
    "ReadOptions",
    "RuleEngine",
    "check_graph",
    "load_graph",
    "mine_rules",
    "read_rules",
    "write_graph",
    "write_rules",
]
