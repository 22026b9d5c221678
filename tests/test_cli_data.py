"""`squire data …`: what is printed where, the exit code, and no traceback whatever the user does."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from dirty import FATAL, GOOD, HARMLESS, Case, folder, lay_out
from graphs import facts_of, make_graph, write
from typer.testing import CliRunner, Result

import squire
from squire import __version__
from squire.cli import app, console
from squire.core.progress import Progress, no_progress
from squire.graph.benchmarks import datasets
from squire.graph.loading import load_graph

# Nine of its triples can be held out without train losing a name.
FACTS = "".join(f"city{i}\tlies in\tcountry{i % 3}\n" for i in range(30)) + "".join(
    f"city{i}\tnear\tcity{i + 1}\n" for i in range(10)
)


COMMANDS = ["check", "stats", "show", "list", "fetch", "convert"]


def invoke(*arguments: str | Path) -> Result:
    """In this process: for what is parsed and printed."""
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


def run(*arguments: str | Path, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    """As the user does, in a process of its own: for exit codes and what stands on standard error."""
    environment = os.environ | {"COLUMNS": "200", "SQUIRE_DATA": "", "SQUIRE_CACHE": str(home or "no-cache")}
    command = [sys.executable, "-m", "squire", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=home)


@pytest.fixture
def graph_file(tmp_path: Path) -> Path:
    return write(tmp_path / "cities.tsv", FACTS)


# ------------------------------------------------------------------------------------------------- exit codes


def test_check_exits_with_0_if_usable(tmp_path: Path) -> None:
    done = run("data", "check", lay_out(HARMLESS[0], tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert "train.txt:1" in done.stdout
    assert done.stdout.rstrip().endswith("usable")


def test_check_exits_with_1_if_not(tmp_path: Path) -> None:
    done = run("data", "check", lay_out(FATAL[0], tmp_path))
    assert (done.returncode, done.stderr) == (1, "")
    assert "train.txt:3: found 2 columns" in done.stdout
    assert "not usable" in done.stdout


MISTAKES = {
    "no such path": (["stats", "nowhere/at-all.tsv"], 1, "nowhere/at-all.tsv"),
    "broken file": (["stats", "broken.tsv"], 1, "broken.tsv:1: found 1 columns"),
    "unknown entity": (["show", "good.tsv", "citty7"], 1, "unknown entity 'citty7'. Nearest: 'city7'"),
    "unknown dataset": (["fetch", "FB15K238"], 1, "FB15k-237|FB15K237"),
    "half a graph file": (["stats", "half.graph"], 1, "half.graph: damaged or cut short"),
    "a target that cannot be": (["convert", "good.tsv", "good.tsv/x.tsv"], 1, "good.tsv"),
    "a format not written": (["convert", "good.tsv", "x.csv"], 1, "cannot write '.csv'"),
    "shares": (["stats", "good.tsv", "--holdout", "0.9,0.9"], 1, "holdout=(0.9, 0.9): expected two shares"),
    "no shares": (["stats", "good.tsv", "--holdout", "much"], 1, "--holdout much: expected two shares"),
    "seed": (["stats", "good.tsv", "--seed", "-1"], 2, "Invalid value for '--seed'"),
    "order": (["check", "good.tsv", "--order", "abc"], 1, "order='abc': expected the letters"),
    "separator": (["check", "good.tsv", "--separator", "::"], 1, "separator='::': expected one ASCII character"),
    "unknown option": (["check", "good.tsv", "--nonsense"], 2, "No such option"),
    "nothing to check": (["check"], 2, "Missing argument"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_ends_in_a_message_not_in_a_traceback(tmp_path: Path, mistake: str) -> None:
    write(tmp_path / "good.tsv", FACTS)
    write(tmp_path / "broken.tsv", "one two three\n")
    write(tmp_path / "half.graph", "half")
    arguments, code, words = MISTAKES[mistake]
    done = run("data", *arguments, home=tmp_path)
    assert done.returncode == code
    assert re.search("|".join(map(re.escape, words.split("|"))), done.stderr)
    assert "Traceback" not in done.stderr + done.stdout
    assert done.stdout == ""


def test_warnings_go_to_standard_error(tmp_path: Path) -> None:
    done = run("data", "stats", write(tmp_path / "x.tsv", GOOD + GOOD), "--json")
    assert json.loads(done.stdout)["facts"] == 2
    assert "duplicate triple, kept once (and 1 more like it)" in done.stderr


def test_a_reader_that_has_seen_enough_gets_no_traceback(graph_file: Path) -> None:
    command = [sys.executable, "-m", "squire", "data", "stats", str(graph_file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 141


# ------------------------------------------------------------------------------------------------------ help


def test_help_has_examples_that_name_real_commands() -> None:
    done = run("--help")
    assert done.returncode == 0
    examples = re.findall(r"^ *squire (\w+) ", done.stdout, re.MULTILINE)
    assert {"train", "answer", "data"} <= set(examples)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_an_example(command: str) -> None:
    shown = invoke(command, "--help")
    assert shown.exit_code == 0
    assert re.search(rf"Example: .*squire data {command}", shown.stdout)


def test_version() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == f"squire {__version__}\n"


# ----------------------------------------------------------------------------------------------------- check


def test_check_as_json(tmp_path: Path) -> None:
    shown = invoke("check", lay_out(FATAL[0], tmp_path), "--json")
    assert shown.exit_code == 1
    found = json.loads(shown.stdout)
    assert found["usable"] is False
    [finding] = found["findings"]
    assert (finding["kind"], finding["count"], finding["fatal"]) == ("columns", 1, True)
    assert finding["examples"][0].startswith(f"{tmp_path}/train.txt:3: ")


def test_check_counts_beyond_the_examples(tmp_path: Path) -> None:
    shown = invoke("check", write(tmp_path / "x.tsv", "a\tr\n" * 12))
    assert "12 × wrong number of columns" in shown.stdout
    assert "… and 7 more" in shown.stdout


def test_check_shows_errors_before_warnings(tmp_path: Path) -> None:
    shown = invoke("check", write(tmp_path / "x.tsv", "\ufeffa\tr\tb\na\tr\n"))
    assert shown.stdout.index("error") < shown.stdout.index("warning")


def test_check_takes_the_reading_options(tmp_path: Path) -> None:
    path = write(tmp_path / "x.txt", "von;nach;wie\na;b;r\n")
    assert invoke("check", path).exit_code == 1
    options = ["--separator", ";", "--header", "--order", "htr"]
    assert invoke("check", path, *options).exit_code == 0
    assert invoke("show", path, "b", *options).stdout.splitlines()[1:] == ["└── ←r─", "    └── a"]


def test_labels_with_markup_are_shown_as_they_are(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", "[bold]a[/bold]\t[/]\t:cat:\n[bold]a[/bold]\t[/]\t[x]\n")
    shown = invoke("show", path, "[bold]a[/bold]")
    assert shown.exit_code == 0
    assert [line.strip("│├└─ ") for line in shown.stdout.splitlines()] == [
        "[bold]a[/bold]  2 edges",
        "[/]→",
        ":cat:",
        "[x]",
    ]


# ------------------------------------------------------------------------------------------ stats, show, list


def test_stats_as_json(graph_file: Path) -> None:
    figures = json.loads(invoke("stats", graph_file, "--json", "--holdout", "0,0").stdout)
    assert set(figures) >= {"entities", "relations", "facts", "degree_mean", "degree_median"}
    assert (figures["entities"], figures["relations"], figures["facts"]) == (33, 2, 40)


def test_stats_as_a_table(tmp_path: Path) -> None:
    facts = "".join(f"e{i}\tr\te{i + 1}\n" for i in range(1200))
    shown = invoke("stats", write(tmp_path / "chain.tsv", facts), "--holdout", "0,0")
    assert re.search(r"entities\s+│\s+1,201", shown.stdout)
    assert "chain" in shown.stdout


def test_show_prints_neighbours_both_ways(tmp_path: Path) -> None:
    shown = invoke("show", write(tmp_path / "x.tsv", "a\tlikes\tb\nc\tlikes\ta\na\tknows\tc\n"), "a")
    assert shown.stdout.splitlines() == [
        "a  3 edges",
        "├── ─knows→",
        "│   └── c",
        "├── ─likes→",
        "│   └── b",
        "└── ←likes─",
        "    └── c",
    ]


def test_show_holds_nothing_back_of_a_single_file(graph_file: Path) -> None:
    assert "country0  10 edges" in invoke("show", graph_file, "country0").stdout


def test_show_prints_as_many_as_asked(graph_file: Path) -> None:
    shown = invoke("show", graph_file, "country0", "--limit", "3").stdout
    assert shown.count("── city") == 3
    assert "… and 7 more (--limit)" in shown


def test_show_shortens_iris(tmp_path: Path) -> None:
    path = write(tmp_path / "x.ttl", "@prefix ex: <http://e.org/> .\nex:a ex:likes ex:b .\n")
    assert "─ex:likes→" in invoke("show", path, "ex:a").stdout


def test_show_keeps_literals_on_request(tmp_path: Path) -> None:
    path = write(tmp_path / "x.nt", '<e:a> <e:p> <e:b> .\n<e:a> <e:name> "A" .\n')
    assert '"A"' not in invoke("show", path, "e:a").stdout
    assert '"A"' in invoke("show", path, "e:a", "--literals").stdout


def test_list_names_every_dataset_and_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = datasets.Row("Kinship", str(tmp_path / "[x]"), 1234, "families")
    monkeypatch.setattr(squire, "list_datasets", lambda: [row, datasets.Row("Other", "download", None, "")])
    monkeypatch.setattr(console.out, "width", 200)
    shown = invoke("list")
    assert shown.exit_code == 0
    assert re.search(rf"Kinship .*1,234 .*{re.escape(str(tmp_path / '[x]'))} .*families", shown.stdout)
    assert "Other" in shown.stdout


def test_list_in_earnest() -> None:
    shown = invoke("list")
    assert shown.exit_code == 0
    assert "world" in shown.stdout


def test_fetch_hands_the_progress_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def fetch_dataset(name: str, *, progress: Progress = no_progress) -> Path:
        progress("train.tsv", 5, None)
        progress("train.tsv", 9, 9)
        asked.append(name)
        return tmp_path

    monkeypatch.setattr(datasets, "fetch_dataset", fetch_dataset)
    assert invoke("fetch", "WN18RR").stdout == f"WN18RR is in {tmp_path}\n"
    assert asked == ["WN18RR"]


def test_a_dataset_goes_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lay_out(Case("", folder(), HARMLESS[0].fault, []), tmp_path)
    (tmp_path / "Kinship").mkdir()
    for file in list(tmp_path.glob("*.txt")):
        file.rename(tmp_path / "Kinship" / file.name)
    monkeypatch.setenv("SQUIRE_DATA", str(tmp_path))
    assert json.loads(invoke("stats", "Kinship", "--json").stdout)["facts"] == 2


# --------------------------------------------------------------------------------------------------- convert


@pytest.mark.parametrize("target", ["x.graph", "x.tsv", "x.nt.gz", "x.parquet.zst"])
def test_convert_to_one_file(graph_file: Path, target: str) -> None:
    path = graph_file.with_name(target)
    shown = invoke("convert", graph_file, path)
    assert (shown.exit_code, shown.stdout) == (0, "")
    assert shown.stderr == f"wrote {path}\n"
    assert facts_of(load_graph(path)) == facts_of(load_graph(graph_file))


@pytest.mark.parametrize("file_format", [".tsv", "nt", ".parquet.gz"])
def test_convert_to_a_folder_of_splits(graph_file: Path, file_format: str) -> None:
    target = graph_file.with_name("out")
    assert invoke("convert", graph_file, target, "--format", file_format, "--seed", "5").exit_code == 0
    suffix = f".{file_format.removeprefix('.')}"
    assert sorted(file.name for file in target.iterdir()) == [f"{s}{suffix}" for s in ("test", "train", "valid")]
    assert facts_of(load_graph(target)) == facts_of(load_graph(graph_file))


def test_convert_keeps_splits_and_seed(graph_file: Path) -> None:
    one, same, other = (graph_file.with_name(f"{name}.graph") for name in ("one", "same", "other"))
    for target, seed in ((one, 1), (same, 1), (other, 2)):
        invoke("convert", graph_file, target, "--seed", str(seed), "--holdout", "0.1,0.1")
    assert load_graph(one) == load_graph(same) != load_graph(other)
    assert [len(load_graph(one).triples(split)) for split in ("valid", "test")] != [0, 0]


def test_convert_refuses_without_leaving_a_file(tmp_path: Path) -> None:
    make_graph({"train": [("a\tb", "r", "c")]}).save(tmp_path / "x.graph")
    done = run("data", "convert", tmp_path / "x.graph", tmp_path / "x.tsv")
    assert done.returncode == 1
    assert "contains a tab or a line end, which TSV cannot" in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["x.graph"]
