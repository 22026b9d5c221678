"""`squire paths` as a user meets it."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from squire.cli import app
from squire.errors import SettingError

FACTS = "a\tparent\tb\nb\tparent\tc\na\tgrandparent\tc\nx\tparent\ty\ny\tparent\tz\nx\tgrandparent\tz\n"


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    (tmp_path / "family").mkdir()
    (tmp_path / "family" / "train.tsv").write_text(FACTS)
    return tmp_path / "family"


def test_the_table_holds_every_fact_and_its_inverse_with_a_path(graph: Path, tmp_path: Path) -> None:
    rules, target = tmp_path / "rules.tsv", tmp_path / "paths.parquet"
    runner = CliRunner()
    assert runner.invoke(app, ["mine", str(graph), "-o", str(rules)]).exit_code == 0
    result = runner.invoke(app, ["paths", str(graph), "--rules", str(rules), "-o", str(target)])
    assert result.exit_code == 0
    assert "72 paths" in result.output
    rows = pq.read_table(target).to_pylist()
    assert sum(row["weight"] for row in rows) == 6 * 2 * 6
    by_fact = {(row["head"], row["relation"], row["tail"]): row for row in rows}
    assert len(by_fact) == 12
    assert by_fact["a", "grandparent", "c"]["path"] == ["parent", "b", "parent", "c"]
    assert by_fact["a", "grandparent", "c"]["source"] == "rule"
    assert by_fact["c", "grandparent⁻¹", "a"]["path"] == ["parent⁻¹", "b", "parent⁻¹", "a"]


def test_another_suffix_is_refused(graph: Path) -> None:
    result = CliRunner().invoke(app, ["paths", str(graph), "-o", "paths.tsv"])
    assert isinstance(result.exception, SettingError)
    assert "ends in .parquet" in str(result.exception)
