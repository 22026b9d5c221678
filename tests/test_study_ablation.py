"""Three variants, each a run of its own by the one training loop: compared fairly, and never trained twice."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from small_run import TINY, family
from study_cases import study
from test_plots import PNG, drawn
from test_train import ignore

from squire.core.run_files import METRICS, RECIPE, TRIES
from squire.errors import SettingError
from squire.evaluation.baselines import rank_by_frequency
from squire.evaluation.paths import rank_by_paths
from squire.evaluation.queries import QuerySet
from squire.model.recipe import Recipe, load_recipe, load_settings
from squire.search.options import DecodingOptions
from squire.search.trained import TrainedModel
from squire.studies import ablation_study
from squire.studies.ablation_study import (
    FULL,
    NO_ITER,
    NO_RULE,
    VARIANTS,
    Ablation,
    AblationResult,
    Budget,
    scores_of,
)
from squire.studies.reports import FREQUENCY
from squire.training.preparation import prepare
from squire.training.trainer import Trainer, TrainingState

__all__ = ["drawn"]  # a fixture
SETTINGS = [*TINY, "train.epochs=4", "train.iterate_beam=4", "train.iterate_paths=2", "train.fact_passes=0"]
SETTINGS += ["paths.fresh=false"]
OPTIONS = [word for setting in SETTINGS for word in ("--set", setting)]


def a_recipe(*more: str) -> Recipe:
    return load_recipe("small", [*SETTINGS, *more])


def silent(*_: object) -> None:
    pass


def trained(folder: Path, budget: Budget = "steps") -> Ablation:
    made = Ablation(family(), a_recipe(), folder, budget)
    for variant in VARIANTS:
        made.train(variant, made.prepared(variant), ignore)
    return made


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Ablation:
    return trained(tmp_path_factory.mktemp("ablation"))


def steps_of(run: Path) -> int:
    lines = [json.loads(line) for line in (run / METRICS).read_text().splitlines()]
    return sum("loss" in line for line in lines)


def test_variants_differ_in_iterations_rules_and_epochs_alone(done: Ablation) -> None:
    for variant, (iterate, rules) in zip(VARIANTS, [(True, True), (False, True), (False, False)], strict=True):
        _, recipe = load_settings(done.run_folder(variant))
        base = done.recipe
        epochs = recipe.train.epochs
        assert recipe.paths == replace(base.paths, rules=rules)
        assert recipe.train == replace(base.train, iterate=iterate, epochs=epochs)
        assert (recipe.model, recipe.decode) == (base.model, base.decode)
        training = done.training(variant)
        assert training is not None
        assert training.finished
        assert training.step == steps_of(done.run_folder(variant))
    first, second, third = ((done.run_folder(variant) / TRIES).read_bytes() for variant in VARIANTS)
    assert first == second  # the paths that full began with
    assert first != third


def test_without_iterations_a_variant_has_the_steps_of_full(done: Ablation) -> None:
    full = done.training(FULL)
    assert full is not None
    for variant in (NO_ITER, NO_RULE):
        training = done.training(variant)
        assert training is not None
        an_epoch = training.step / training.epochs
        assert abs(training.step - full.step) <= an_epoch / 2 + 1
        assert training.epochs > done.recipe.train.epochs
    # 4 epochs of the first paths, 2 of twice as many, 1 of thrice as many
    no_iter = done.training(NO_ITER)
    assert no_iter is not None
    assert no_iter.paths is not None
    each = no_iter.paths / no_iter.epochs
    assert full.paths == (4 + 2 * 2 + 3) * each


def test_with_the_recipes_epochs_it_has_fewer_steps_and_the_table_says_so(tmp_path: Path) -> None:
    made = trained(tmp_path, "epochs")
    full, no_iter = made.training(FULL), made.training(NO_ITER)
    assert full is not None
    assert no_iter is not None
    assert (full.epochs, no_iter.epochs) == (4 + 2 + 1, 4)
    assert no_iter.step < full.step
    table = made.result().markdown()
    assert "fewer steps" in table
    assert f"| − iter | 4 | {no_iter.step:,} |" in table


def test_each_variant_is_what_squire_train_makes_of_its_recipe(done: Ablation, tmp_path: Path) -> None:
    graph, recipe = load_settings(done.run_folder(NO_ITER))
    Trainer(graph, recipe, prepare(graph, recipe, tmp_path, silent), tmp_path).fit(ignore)

    def course(run: Path) -> list[tuple[int, object]]:
        lines = [json.loads(line) for line in (run / METRICS).read_text().splitlines()]
        return [(line["step"], line.get("loss", line.get("valid"))) for line in lines]

    assert course(tmp_path) == course(done.run_folder(NO_ITER))


def test_both_aggregations_of_one_search_are_those_of_two(done: Ablation) -> None:
    folder = done.run_folder(FULL)
    query_set = QuerySet.from_graph(done.graph, "test")
    run = TrainedModel.load(folder)
    for aggregate, score in scores_of(folder, query_set).items():
        decoding = DecodingOptions.from_recipe(run.recipe, run.known_edges, aggregate=aggregate)
        assert score.metrics == rank_by_paths(run.decoder, done.graph, query_set, decoding, 0).metrics()


def test_rows_have_frequency_signatures_and_paired_differences(done: Ablation) -> None:
    result = done.result()
    assert result.finished
    names = [variant.name for variant in VARIANTS for _ in ("sum", "max")] + [FREQUENCY]
    assert [(row.split, row.variant) for row in result.rows] == [
        (split, name) for split in ("valid", "test") for name in names
    ]
    table = result.markdown()
    filters = {"valid": ("train", "valid"), "test": ("train", "valid", "test")}
    for row in result.rows:
        query_set = QuerySet.from_graph(done.graph, row.split, filter_splits=filters[row.split])
        assert f"`{row.metrics.signature}`" in table
        if row.variant == FREQUENCY:
            assert row.metrics == rank_by_frequency(done.graph, query_set).metrics()
            assert row.behind_full is None
        elif row.variant != FULL.name:
            by = row.metrics.signature.aggregation
            full = next(
                one for one in result.rows if one.split == row.split and one.metrics.signature.aggregation == by
            )
            assert row.behind_full is not None
            difference, low, high = row.behind_full
            assert difference == pytest.approx(row.metrics.mrr - full.metrics.mrr)
            assert low <= difference + 1e-9
            assert high >= difference - 1e-9


def test_ctrl_c_goes_on_where_it_was_and_ends_as_if_it_had_not_been(done: Ablation, tmp_path: Path) -> None:
    """Stopped once while it trains, once while it gathers; another process goes on."""

    def at_step_three(now: TrainingState) -> None:
        if now.step == 3:
            signal.raise_signal(signal.SIGINT)

    def while_gathering(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    for watch, stage in ((at_step_three, silent), (ignore, while_gathering)):
        made = Ablation(family(), a_recipe(), tmp_path)
        with pytest.raises(KeyboardInterrupt):
            made.train(FULL, made.prepared(FULL), watch, progress=stage)
        assert not made.finished(FULL)
        with pytest.raises(SettingError, match="needs as many steps as full, which is not trained yet"):
            made.prepared(NO_ITER)
    made = trained(tmp_path)
    for variant in VARIANTS:
        once, again = done.training(variant), made.training(variant)
        assert once is not None
        assert again is not None
        assert replace(once, seconds=0) == replace(again, seconds=0)
    assert [row.metrics for row in made.result().rows] == [row.metrics for row in done.result().rows]


def test_ranks_that_are_noted_are_not_asked_for_again(done: Ablation, monkeypatch: pytest.MonkeyPatch) -> None:
    before = done.result()

    def never(*_: object) -> None:
        raise AssertionError("searched again")

    monkeypatch.setattr(ablation_study, "decode", never)
    assert [row.metrics for row in done.result().rows] == [row.metrics for row in before.rows]


def test_another_recipe_seed_graph_or_budget_is_refused_by_name(done: Ablation) -> None:
    with pytest.raises(SettingError, match=r"another study .*train\.seed is 0 there and 1 here"):
        Ablation(family(), a_recipe("train.seed=1"), done.folder)
    with pytest.raises(SettingError, match=r"another study .*decode\.beam is 16 there and 8 here"):
        Ablation(family(), a_recipe("decode.beam=8"), done.folder)
    with pytest.raises(SettingError, match=r"another study .*budget is 'steps' there and 'epochs' here"):
        Ablation(family(), a_recipe(), done.folder, "epochs")
    graph = family()
    other = replace(graph, valid=graph.test)
    with pytest.raises(SettingError, match=r"another study .*facts is"):
        Ablation(other, a_recipe(), done.folder)


def test_what_cannot_be_ablated_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"paths\.hops is 1: there is nothing to iterate"):
        Ablation(family(), a_recipe("paths.hops=1"), tmp_path)
    with pytest.raises(SettingError, match="has no valid facts"):
        Ablation(family(valid=False), a_recipe(), tmp_path)


def command(folder: Path, *more: str) -> list[str]:
    family().save(folder / "family.graph")
    return [str(folder / "family.graph"), "--recipe", "small", "--out", str(folder / "out"), *OPTIONS, *more]


def test_the_command_writes_table_numbers_and_curves(tmp_path: Path, drawn: list[Figure]) -> None:
    result = study("ablation", *command(tmp_path), "--seed", 3)
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "out" / "ablation.json").read_text())
    assert content["finished"]
    assert content["recipe"]["train"]["seed"] == 3
    assert [one["variant"] for one in content["variants"]] == [variant.name for variant in VARIANTS]
    table = (tmp_path / "out" / "ablation.md").read_text()
    for row in content["rows"]:
        assert f"| {row['variant']} |" in table
        assert f"`{row['metrics']['signature']}`" in table
        assert "seed:3" in row["metrics"]["signature"] or row["variant"] == FREQUENCY
    assert (tmp_path / "out" / "ablation.png").read_bytes().startswith(PNG)
    (axes,) = drawn[0].axes
    assert axes.get_xlabel() == "optimisation steps"
    assert "MRR" in axes.get_ylabel()
    lines = {str(line.get_label()): np.array(line.get_xydata()) for line in axes.lines}
    for name, curve in content["curves"].items():
        (drawn_curve,) = (points for label, points in lines.items() if label.startswith(f"{name}, best"))
        assert drawn_curve.tolist() == curve["step_mrr"]
    assert any(label.startswith("tail frequency") for label in lines)
    begin = content["curves"]["full"]["iterations_begin"]
    assert [text.get_text() for text in axes.texts] == ["iteration 2", "iteration 3"]
    assert len(begin) == 2
    again = study("ablation", *command(tmp_path), "--seed", 3, "--json")
    assert json.loads(again.stdout) == content  # nothing was trained or asked again


def test_a_time_limit_puts_down_and_the_same_command_goes_on(tmp_path: Path) -> None:
    stopped = study("ablation", *command(tmp_path, "--minutes", "0"))
    assert stopped.exit_code == 0, stopped.output
    assert "run the same command to continue" in stopped.stderr
    content = json.loads((tmp_path / "out" / "ablation.json").read_text())
    assert not content["finished"]
    assert content["rows"] == []
    assert not (tmp_path / "out" / NO_ITER.folder / RECIPE).exists()  # its steps depend on those of full
    assert "Not finished" in (tmp_path / "out" / "ablation.md").read_text()
    assert study("ablation", *command(tmp_path)).exit_code == 0
    assert json.loads((tmp_path / "out" / "ablation.json").read_text())["finished"]


def test_what_the_study_varies_cannot_be_set(tmp_path: Path) -> None:
    failed = study("ablation", *command(tmp_path, "--set", "paths.rules=false")).exception
    assert isinstance(failed, SettingError)
    assert "is what the study varies" in str(failed)


def test_an_unfinished_study_has_a_result(tmp_path: Path) -> None:
    made = Ablation(family(), a_recipe(), tmp_path)
    result = made.result()
    assert isinstance(result, AblationResult)
    assert not result.finished
    assert (result.rows, result.trainings) == ([], {})
    assert "Not finished" in result.markdown()
