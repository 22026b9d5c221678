"""A picture shows what a run has logged, beside what it must beat, and appears whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from test_train import a_graph, a_recipe
from typer.testing import CliRunner

from squire.cli import app
from squire.core.run_files import GRAPH, METRICS, RECIPE
from squire.errors import DataError, SettingError
from squire.evaluation.baselines import rank_by_frequency
from squire.evaluation.plots import draw, read_history
from squire.evaluation.queries import QuerySet
from squire.graph.graph import Graph

SIGNATURE = "made|split:valid|side:tail|method:model-edge|filter:train+valid"
PNG = b"\x89PNG\r\n\x1a\n"


def a_run(folder: Path, steps: int = 100, graph: Graph | None = None) -> Path:
    """What training leaves of its course, without training."""
    folder.mkdir()
    (a_graph() if graph is None else graph).save(folder / GRAPH)
    (folder / RECIPE).write_text(json.dumps(a_recipe().to_dict()))
    lines: list[dict[str, object]] = []
    for step in range(1, steps + 1):
        lines.append({"step": step, "epoch": 0, "loss": 4 / step, "nodes_per_second": 100})
        if step % 50 == 0:
            lines.append({"step": step, "epoch": 0, "valid": {"mrr": step / 500, "signature": SIGNATURE}})
    (folder / METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that were saved."""
    figures: list[Figure] = []
    save = Figure.savefig

    def and_keep(figure: Figure, *arguments: object, **options: object) -> None:
        figures.append(figure)
        save(figure, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Figure, "savefig", and_keep)
    return figures


def test_a_run_is_drawn_with_title_axes_and_the_frequency_row(tmp_path: Path, drawn: list[Figure]) -> None:
    run = a_run(tmp_path / "mine")
    result = CliRunner().invoke(app, ["plot", str(run)])
    assert result.exit_code == 0, result.output
    assert (run / "curves.png").read_bytes().startswith(PNG)
    loss, mrr = drawn[0].axes
    assert loss.get_title() == "run mine, recipe small"
    assert [text.get_text() for text in loss.texts] == [SIGNATURE]
    raw, smooth = (np.asarray(line.get_ydata()) for line in loss.lines)
    np.testing.assert_allclose(raw, 4 / np.arange(1, 101))
    means = [np.mean(raw[max(0, i - 1) : i + 1]) for i in range(100)]  # 2 % of 100 are 2 steps
    np.testing.assert_allclose(smooth, means)
    watched, frequency = mrr.lines
    assert watched.get_xydata().tolist() == [[50, 0.1], [100, 0.2]]  # type: ignore[union-attr]
    assert frequency.get_linestyle() == "--"
    expected = (
        rank_by_frequency(a_graph(), QuerySet.from_graph(a_graph(), "valid", filter_splits=("train", "valid")))
        .metrics()
        .mrr
    )
    assert np.asarray(frequency.get_ydata()) == pytest.approx(expected)
    assert "nats" in loss.get_ylabel()
    assert "MRR" in mrr.get_ylabel()
    assert mrr.get_xlabel() == "step"


def test_the_frequency_row_is_filtered_like_the_curve(tmp_path: Path) -> None:
    graph = a_graph()
    without = Graph(graph.name, graph.labels, graph.train, graph.valid, graph.test[:0])
    runs = [a_run(tmp_path / name, graph=g) for name, g in (("with", graph), ("without", without))]
    assert len({read_history(run).frequency for run in runs}) == 1


def test_several_runs_share_a_picture(tmp_path: Path, drawn: list[Figure]) -> None:
    runs = [str(a_run(tmp_path / name, steps)) for name, steps in (("_a", 30), ("b $x", 60), ("ü 中", 1))]
    result = CliRunner().invoke(app, ["plot", *runs])
    assert isinstance(result.exception, SettingError)
    assert "output=None" in str(result.exception)
    result = CliRunner().invoke(app, ["plot", *runs, "-o", str(tmp_path / "new" / "all.png")])
    assert result.exit_code == 0, result.output
    legend = drawn[0].axes[0].get_legend()
    assert legend is not None
    names = [text.get_text() for text in legend.get_texts()]
    assert names == [f"run {name}, recipe small" for name in ("_a", r"b \$x", "ü 中")]
    assert len([line for line in drawn[0].axes[1].lines if line.get_linestyle() == "--"]) == 1  # one graph


def test_without_valid_there_is_only_the_loss(tmp_path: Path, drawn: list[Figure]) -> None:
    graph = a_graph()
    run = a_run(tmp_path / "run", 40, Graph(graph.name, graph.labels, graph.train, graph.valid[:0], graph.test))
    draw([read_history(run)], tmp_path / "one.SVG")
    assert b"<svg" in (tmp_path / "one.SVG").read_bytes()
    assert len(drawn[0].axes) == 1


def test_a_folder_of_metrics_alone_can_be_drawn(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", 10)
    for name in (GRAPH, RECIPE):
        (run / name).unlink()
    draw([read_history(run)], tmp_path / "one.png")
    assert (tmp_path / "one.png").read_bytes().startswith(PNG)


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", 10)
    with (run / METRICS).open("a") as file:
        file.write('{"step": 11, "ep')
    assert len(read_history(run).loss) == 10


@pytest.mark.parametrize("line", ["", "{", "[1]", '{"step": 3}', '{"step": 3, "loss": "x"}', '{"loss": 1.0}'])
def test_a_broken_line_is_named(tmp_path: Path, line: str) -> None:
    run = a_run(tmp_path / "run", 10)
    lines = (run / METRICS).read_text().splitlines()
    (run / METRICS).write_text("\n".join([*lines[:2], line, *lines[2:]]) + "\n")
    with pytest.raises(DataError, match=rf"{METRICS}:3: not a line of training metrics"):
        read_history(run)


def test_what_cannot_be_drawn_is_said(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run", 10)
    with pytest.raises(SettingError, match=r"nowhere: no training curves here .* Give a folder made by"):
        read_history(tmp_path / "nowhere")
    (run / RECIPE).write_text("{")
    with pytest.raises(DataError, match=rf"{RECIPE}: not the recipe of a run"):
        read_history(run)
    (run / METRICS).write_text("")
    with pytest.raises(SettingError, match="no step is logged yet"):
        read_history(run)
    result = CliRunner().invoke(app, ["plot", str(run), "-o", str(tmp_path / "plot.jpg")])
    assert "plot.jpg': expected a name that ends in .png, .svg, .pdf" in str(result.exception)


def test_a_failing_save_leaves_the_picture_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history, file = read_history(a_run(tmp_path / "run", 10)), tmp_path / "picture.png"
    file.write_bytes(b"before")

    def half(_: Figure, path: Path, **__: object) -> None:
        path.write_bytes(b"half")
        raise OSError("no room")

    monkeypatch.setattr(Figure, "savefig", half)
    with pytest.raises(OSError, match="no room"):
        draw([history], file)
    assert file.read_bytes() == b"before"
    assert {path.name for path in tmp_path.iterdir()} == {"run", "picture.png"}
