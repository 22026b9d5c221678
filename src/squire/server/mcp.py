"""A run as a Model Context Protocol server, so that what a language model claims can rest on evidence."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from squire import Run, __version__
from squire.errors import SettingError, SquireError
from squire.server.autocomplete import LabelSearch

if TYPE_CHECKING:
    from mcp.server import MCPServer

P = ParamSpec("P")
R = TypeVar("R")
INSTRUCTIONS = (
    "Answers questions about a knowledge graph. Facts are what the graph says; other answers are predictions with "
    "a confidence and a path of facts as evidence. Names are those of the graph: find them with search_entities."
)
MOST = 100  # answers or matches of one call


def serve_mcp(run: Run | str | Path) -> None:
    """Serves a run over the Model Context Protocol, on standard input and output, until the client leaves."""
    create_server(run if isinstance(run, Run) else Run(run)).run("stdio")


def create_server(run: Run) -> MCPServer:
    """The server, with the tools answer, check, connect and search_entities."""
    if importlib.util.find_spec("mcp") is None:
        raise SettingError("this needs the package mcp. Install with `pip install 'squire-kg[mcp]'`.")
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    server = MCPServer("squire", instructions=INSTRUCTIONS, version=__version__)
    graph, labels = run.graph, run.graph.labels
    search = LabelSearch([labels.shorten(label) for label in labels.entities], np.diff(graph.facts.offsets))
    often = np.bincount(graph.facts.triples[:, 1], minlength=graph.num_relations)
    relations = [labels.relation(number) for number in np.argsort(-often, kind="stable")[:MOST].tolist()]
    run.reasoner.query(labels.entity(0), labels.relation(0))  # loads everything before the first call

    def tool(function: Callable[P, R]) -> Callable[P, R]:
        """A tool whose errors are messages for the client."""

        @wraps(function)
        def safe(*arguments: P.args, **options: P.kwargs) -> R:
            try:
                return function(*arguments, **options)
            except SquireError as error:
                raise ToolError(str(error)) from None

        server.tool()(safe)
        return safe

    @tool
    def search_entities(text: str, limit: int = 10) -> dict[str, Any]:
        """Find entities of the graph whose name begins with the text, contains it or resembles it.

        Also lists the relations, the most frequent first.
        """
        found = search.find(text, min(max(limit, 1), MOST))
        return {
            "entities": [labels.entity(match.id) for match in found],
            "relations": relations,
            "num_relations": graph.num_relations,
        }

    @tool
    def answer(relation: str, head: str | None = None, tail: str | None = None, k: int = 5) -> dict[str, Any]:
        """Answer (head, relation, ?), or (?, relation, tail) if head is left out: facts, then predictions."""
        found = run.answer(head, relation, tail, k=min(max(k, 1), MOST))
        return {
            "question": found.question,
            "facts": [one.entity for one in found.facts],
            "num_facts": found.num_facts,
            "predictions": [
                {
                    "entity": one.entity,
                    "confidence": one.confidence,
                    "evidence": one.evidence.text,
                    "grade": one.evidence.grade,
                    "based_on": one.basis,
                    "sampled": one.sampled,
                }
                for one in found
            ],
        }

    @tool
    def check(head: str, relation: str, tail: str) -> dict[str, Any]:
        """How likely a claimed fact is, the evidence for it, and what speaks against it."""
        found = run.check(head, relation, tail)
        return {
            "fact": found.fact,
            "in_graph": found.is_fact,
            "confidence_without_itself": found.confidence,
            "evidence": found.answer.evidence.text,
            "against": list(found.against),
        }

    @tool
    def connect(first: str, second: str) -> str:
        """How two entities are connected: paths by relation pattern, and facts that they suggest."""
        return repr(run.connect(first, second))

    return server
