"""Link prediction that a person can read and trust.

import squire

graph = squire.load_graph("my-graph.ttl")
run = squire.train(graph, "runs/mine")
run.answer("Vienna", "located in", k=3)
"""

from importlib import import_module
from typing import TYPE_CHECKING

from squire.core import __version__

if TYPE_CHECKING:
    from squire.api import Run as Run
    from squire.api import evaluate_rules as evaluate_rules
    from squire.api import fetch_dataset as fetch_dataset
    from squire.api import fuse as fuse
    from squire.api import mine as mine
    from squire.api import plot as plot
    from squire.api import sample_paths as sample_paths
    from squire.api import train as train
    from squire.completion.doubts import DoubtfulFacts as DoubtfulFacts
    from squire.completion.predictions import Predictions as Predictions
    from squire.evaluation.metrics import Metrics as Metrics
    from squire.evaluation.report import Evaluation as Evaluation
    from squire.graph.benchmarks.datasets import list_datasets as list_datasets
    from squire.graph.changes import Change as Change
    from squire.graph.graph import Graph as Graph
    from squire.graph.labels import LabelIndex as LabelIndex
    from squire.graph.loading import check_graph as check_graph
    from squire.graph.loading import load_graph as load_graph
    from squire.graph.loading import write_graph as write_graph
    from squire.reasoning.answers import Answer as Answer
    from squire.reasoning.answers import Answers as Answers
    from squire.reasoning.answers import Evidence as Evidence
    from squire.reasoning.answers import Origin as Origin
    from squire.reasoning.attention import attention_of as attention_of
    from squire.reasoning.checks import FactCheck as FactCheck
    from squire.reasoning.checks import check_fact as check_fact
    from squire.reasoning.connections import Connections as Connections
    from squire.reasoning.connections import find_connections as find_connections
    from squire.reasoning.examples import example_questions as example_questions
    from squire.reasoning.reasoner import RankedBy as RankedBy
    from squire.reasoning.reasoner import Reasoner as Reasoner
    from squire.reasoning.reasons import Reasons as Reasons
    from squire.reasoning.reasons import find_reasons as find_reasons
    from squire.reasoning.restrictions import restrict as restrict
    from squire.rules.mining import MiningOptions as MiningOptions
    from squire.rules.ruleset import RuleSet as RuleSet
    from squire.search.options import Aggregate as Aggregate
    from squire.server.mcp import serve_mcp as serve_mcp
    from squire.server.serving import serve as serve

# Where each public name lives. They are imported when they are first used, since torch takes a second to load.
_HOMES = {
    "Aggregate": "search.options",
    "Answer": "reasoning.answers",
    "Answers": "reasoning.answers",
    "Change": "graph.changes",
    "Connections": "reasoning.connections",
    "DoubtfulFacts": "completion.doubts",
    "Evaluation": "evaluation.report",
    "Evidence": "reasoning.answers",
    "FactCheck": "reasoning.checks",
    "Graph": "graph.graph",
    "LabelIndex": "graph.labels",
    "Metrics": "evaluation.metrics",
    "MiningOptions": "rules.mining",
    "Origin": "reasoning.answers",
    "Predictions": "completion.predictions",
    "RankedBy": "reasoning.reasoner",
    "Reasoner": "reasoning.reasoner",
    "Reasons": "reasoning.reasons",
    "RuleSet": "rules.ruleset",
    "Run": "api",
    "attention_of": "reasoning.attention",
    "check_fact": "reasoning.checks",
    "check_graph": "graph.loading",
    "evaluate_rules": "api",
    "example_questions": "reasoning.examples",
    "fetch_dataset": "api",
    "find_connections": "reasoning.connections",
    "find_reasons": "reasoning.reasons",
    "fuse": "api",
    "list_datasets": "graph.benchmarks.datasets",
    "load_graph": "graph.loading",
    "mine": "api",
    "plot": "api",
    "restrict": "reasoning.restrictions",
    "sample_paths": "api",
    "serve": "server.serving",
    "serve_mcp": "server.mcp",
    "train": "api",
    "write_graph": "graph.loading",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'squire' has no attribute {name!r}")
    value = getattr(import_module(f"squire.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
