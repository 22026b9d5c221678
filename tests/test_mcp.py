"""A real client of the Model Context Protocol asks `squire mcp`, over standard input and output."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import pytest
from small_run import fused_run

import squire

pytest.importorskip("mcp")  # an extra

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


def conversation(*calls: tuple[str, dict[str, Any]]) -> tuple[set[str], list[Any]]:
    """The names of the tools, and the result of each call."""

    async def talk() -> tuple[set[str], list[Any]]:
        command = StdioServerParameters(
            command=sys.executable, args=["-m", "squire", "mcp", str(fused_run())], env=dict(os.environ)
        )
        async with stdio_client(command) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            tools = {tool.name for tool in (await session.list_tools()).tools}
            return tools, [await session.call_tool(name, arguments) for name, arguments in calls]

    return asyncio.run(talk())


def test_a_client_finds_names_asks_checks_and_connects() -> None:
    names, (found, answered, checked, connected, unknown) = conversation(
        ("search_entities", {"text": "cle"}),
        ("answer", {"head": "cleo", "relation": "grandparent", "k": 2}),
        ("check", {"head": "ada", "relation": "grandparent", "tail": "ada 2"}),
        ("connect", {"first": "ada", "second": "ben"}),
        ("answer", {"head": "cloe", "relation": "grandparent"}),
    )
    run = squire.Run(fused_run())
    assert names == {"search_entities", "answer", "check", "connect"}
    assert found.structured_content["entities"][0] == "cleo"
    assert found.structured_content["relations"] == ["ex:parent", "likes", "grandparent"]  # by their facts
    assert found.structured_content["num_relations"] == 3
    assert answered.structured_content["num_facts"] == 1
    expected = run.answer("cleo", "grandparent", k=2)
    assert answered.structured_content["facts"] == [one.entity for one in expected.facts]
    assert [one["confidence"] for one in answered.structured_content["predictions"]] == [
        one.confidence for one in expected
    ]
    assert (
        checked.structured_content["confidence_without_itself"]
        == run.check("ada", "grandparent", "ada 2").confidence
    )
    assert connected.content[0].text == repr(run.connect("ada", "ben"))
    assert unknown.is_error
    assert "unknown entity 'cloe'. Nearest: 'cleo" in unknown.content[0].text
