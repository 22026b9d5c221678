"""Recipes: the paper's numbers, every key stated, and every wrong value refused by its key."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from squire.errors import SettingError, UnknownName
from squire.graph.loading import load_graph
from squire.graph.statistics import Stats
from squire.model.recipe import (
    KEYS,
    DecodeConfig,
    ModelConfig,
    PathConfig,
    Recipe,
    TrainConfig,
    load_recipe,
    recipe_for,
    recipe_names,
)

OURS = ["dense", "large", "medium", "small", "sparse"]
# Table 6: lr, ε, p, α, epochs, beam; and Appendix A: iterative training is off for the two large graphs.
TABLE_6 = {
    "paper-fb15k237": (0.0005, 0.25, 0.15, 1 / 3, 30, 256, True),
    "paper-nell995": (0.001, 0.25, 0.15, 1 / 10, 30, 512, True),
    "paper-fb15k237-20": (0.0001, 0.25, 0.25, 1 / 3, 30, 256, True),
    "paper-nell23k": (0.0005, 0.25, 0.15, 1 / 3, 100, 512, True),
    "paper-kacc-m": (0.001, 0.75, 0.15, 1 / 10, 20, 256, False),
    "paper-fb100k": (0.001, 0.55, 0.15, 1 / 3, 40, 256, False),
}


def text_of(name: str) -> str:
    return (resources.files("squire.model") / "recipes" / f"{name}.toml").read_text(encoding="utf-8")


def write(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


# ------------------------------------------------------------------------------------------------- recipes


def test_names_are_those_of_table_6_and_ours() -> None:
    assert recipe_names() == sorted([*TABLE_6, *OURS])


@pytest.mark.parametrize("name", TABLE_6)
def test_paper_recipes_are_table_6(name: str) -> None:
    recipe = load_recipe(name)
    train = recipe.train
    found = (train.learning_rate, train.smoothing, train.mask_probability, train.warmup, train.epochs)
    assert (*found, recipe.decode.beam, train.iterate) == TABLE_6[name]


@pytest.mark.parametrize("name", TABLE_6)
def test_paper_recipes_are_the_papers_model_without_our_departures(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.model == ModelConfig(
        layers=6,
        dim=256,
        feedforward=512,
        heads=4,
        dropout=0.1,
        input_dropout=0.0,
        output_dropout=0.0,
        typed=False,
        prior=False,
        norm_first=False,
        activation="relu",
        max_hops=3,
    )
    assert (recipe.paths.hops, recipe.paths.per_triple, recipe.paths.rules) == (3, 6, True)
    assert (recipe.train.mask_with, recipe.train.clip, recipe.train.weight_decay) == ("mask", 0.0, 0.0)
    assert recipe.train.sampled_entities == 0


@pytest.mark.parametrize("name", OURS)
def test_our_recipes_are_typed_with_the_prior(name: str) -> None:
    model = load_recipe(name).model
    assert model.typed
    assert model.prior


@pytest.mark.parametrize("name", [*TABLE_6, *OURS])
def test_every_recipe_states_and_explains_every_key(name: str) -> None:
    text = text_of(name)
    content = tomllib.loads(text)
    assert content["about"]
    stated = {f"{section}.{key}" for section, keys in content.items() if section != "about" for key in keys}
    assert stated == set(KEYS)
    # The five sizes of Appendix A share one comment.
    shared = {"dim", "feedforward", "heads", "dropout"} if name in TABLE_6 else set()
    lines = text.splitlines()
    for before, line in pairwise(lines):
        key = line.partition(" = ")[0]
        if " = " in line and not line.startswith("#") and key not in shared:
            assert before.startswith("# "), f"{name}: {key} has no reason"


@pytest.mark.parametrize("name", [*TABLE_6, *OURS])
def test_recipes_survive_json(name: str) -> None:
    recipe = load_recipe(name, ["train.epochs=7", "train.warmup=0.1234567890123"])
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


def test_recipes_need_no_torch() -> None:
    code = "import sys, squire.model.recipe as c; c.load_recipe('small'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ------------------------------------------------------------------------------------------------- auto


def stats(facts: int, entities: int, degree_mean: float) -> Stats:
    return Stats("g", entities, 10, facts, degree_mean, 1.0, 0, 0, 0, 9)


@pytest.mark.parametrize(
    ("facts", "entities", "degree", "chosen"),
    [
        (0, 0, 0.0, "sparse"),  # an empty graph
        (5_216, 135, 38.6, "small"),  # UMLS
        (19_999, 100, 200.0, "small"),
        (25_445, 22_925, 1.11, "sparse"),  # NELL23K, and so on down the paper's Table 1
        (54_423, 13_166, 4.13, "medium"),
        (117_937, 62_706, 1.88, "medium"),
        (272_115, 14_505, 18.71, "dense"),
        (642_650, 99_615, 6.45, "large"),
        (1_013_470, 100_030, 10.13, "large"),
        (300_000, 250_000, 1.2, "large"),  # few facts, but a large softmax
    ],
)
def test_auto_chooses_by_size_then_by_degree(facts: int, entities: int, degree: float, chosen: str) -> None:
    assert recipe_for(stats(facts, entities, degree)) == chosen
    assert load_recipe(chosen).name == chosen


def test_auto_chooses_small_for_the_bundled_graph() -> None:
    world = load_graph(Path(str(resources.files("squire") / "data" / "world")))
    assert recipe_for(Stats.from_graph(world)) == "small"


# ------------------------------------------------------------------------------------------------- files


def test_a_file_sets_what_it_says_and_leaves_the_rest(tmp_path: Path) -> None:
    path = write(tmp_path, 'about = "Mine."\n[train]\nepochs = 3\nclip = 2\n')
    recipe = load_recipe(str(path))
    assert recipe == Recipe(name="mine", about="Mine.", train=replace(TrainConfig(), epochs=3, clip=2.0))
    assert type(recipe.train.clip) is float
    assert load_recipe(path) == recipe


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    path = tmp_path / "windows.toml"
    path.write_bytes(b"\xef\xbb\xbf[train]\r\nepochs = 3\r\n")
    assert load_recipe(path).train.epochs == 3


def test_a_recipe_of_the_package_is_not_shadowed_by_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "[train]\nepochs = 77\n", name="small")
    monkeypatch.chdir(tmp_path)
    assert load_recipe("small").train.epochs != 77
    assert load_recipe(Path("small")).train.epochs == 77


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[train]\nepoch = 3\n", "mine.toml: unknown key 'train.epoch'. Nearest: 'train.epochs'."),
        ("[model]\nepochs = 3\n", "mine.toml: unknown key 'model.epochs'. Nearest: 'train.epochs'."),
        ("epochs = 3\n", "mine.toml: unknown key 'epochs'. Nearest: 'train.epochs'."),
        ("[trian]\n", "mine.toml: unknown key 'trian'. Nearest: 'train'."),
        ("[zzz]\n", "mine.toml: unknown key 'zzz'."),
        ("train = 3\n", "mine.toml: train is 3: expected a table of keys, [train]."),
        ("about = 3\n", "mine.toml: about is 3: expected text."),
        ("[train]\nepochs = 2.5\n", "mine.toml: train.epochs is 2.5: expected a whole number."),
        ("[train]\nepochs = true\n", "mine.toml: train.epochs is true: expected a whole number."),
        ("[train]\nclip = true\n", "mine.toml: train.clip is true: expected a number."),
        ('[train]\nclip = "1"\n', 'mine.toml: train.clip is "1": expected a number.'),
        ("[model]\ntyped = 1\n", "mine.toml: model.typed is 1: expected true or false."),
        ('[model]\nactivation = "tanh"\n', 'model.activation is "tanh": expected "relu" or "gelu".'),
        ("[train]\nepochs = 1979-05-27\n", 'train.epochs is "1979-05-27": expected a whole number.'),
        ("[train]\nepochs = [3]\n", "train.epochs is [3]: expected a whole number."),
        ("[train\n", "mine.toml: not a TOML file ("),
    ],
)
def test_a_wrong_file_is_refused_with_its_name_and_the_key(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SettingError, match=re.escape(words)):
        load_recipe(write(tmp_path, text))


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingError, match=r"x\.toml: not a TOML file"):
        load_recipe(tmp_path / "x.toml")


def test_a_missing_file_is_named_with_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"gone\.toml: cannot be read \(No such file.* one of dense, large"):
        load_recipe(str(tmp_path / "gone.toml"))


def test_an_unknown_name_has_its_nearest() -> None:
    with pytest.raises(UnknownName, match=r"unknown recipe 'papr-nell23k'\. Nearest: 'paper-nell23k'"):
        load_recipe("papr-nell23k")


# ------------------------------------------------------------------------------------------------- --set


@pytest.mark.parametrize(
    ("override", "section", "key", "value"),
    [
        ("train.epochs=3", "train", "epochs", 3),
        (" train.epochs = 1_000 ", "train", "epochs", 1000),
        ("train.learning_rate=1e-3", "train", "learning_rate", 0.001),
        ("train.iterate=true", "train", "iterate", True),
        ("train.mask_with=random", "train", "mask_with", "random"),  # a shell takes the quotes away
        ('train.mask_with="random"', "train", "mask_with", "random"),
    ],
)
def test_overrides_are_toml_values(override: str, section: str, key: str, value: object) -> None:
    found = getattr(getattr(load_recipe("small", [override]), section), key)
    assert found == value
    assert type(found) is type(value)


def test_overrides_change_nothing_else_and_the_last_one_wins() -> None:
    plain = load_recipe("sparse")
    changed = load_recipe("sparse", ["train.epochs=3", "train.epochs=4", "decode.beam=9"])
    assert changed == replace(plain, train=replace(plain.train, epochs=4), decode=replace(plain.decode, beam=9))


def test_overrides_are_judged_together() -> None:
    assert load_recipe("small", ["model.heads=3", "model.dim=96"]).model.heads == 3
    assert load_recipe("small", ["paths.hops=4", "model.max_hops=4"]).paths.hops == 4


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("train.epochs", "'train.epochs': expected key=value, for example train.epochs=3."),
        ("train.epochs=", "'train.epochs=': expected key=value"),
        ("train.epoch=3", "train.epoch=3: unknown key 'train.epoch'. Nearest: 'train.epochs'."),
        ("name=x", "name=x: unknown key 'name'."),
        ("train=3", "train=3: unknown key 'train'."),
        ("train.epochs=many", 'small, train.epochs=many: train.epochs is "many": expected a whole number.'),
        ("train.epochs=3\nseed=4", 'train.epochs is "3\\nseed=4": expected a whole number.'),
        ("train.warmup=1/3", 'train.warmup is "1/3": expected a number.'),
    ],
)
def test_a_wrong_override_is_refused_in_its_own_words(override: str, words: str) -> None:
    with pytest.raises(SettingError, match=re.escape(words)):
        load_recipe("small", [override])


# ------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("config", "values", "words"),
    [
        (PathConfig, {"min_confidence": 1.5}, "paths.min_confidence is 1.5: expected a share from 0 to 1."),
        (PathConfig, {"hops": 0}, "paths.hops is 0: expected 1 to 4."),
        (PathConfig, {"hops": 5}, "paths.hops is 5: expected 1 to 4."),
        (PathConfig, {"per_triple": 0}, "paths.per_triple is 0: expected 1 to 1,000."),
        (ModelConfig, {"layers": 0}, "model.layers is 0: expected 1 to 100."),
        (ModelConfig, {"layers": 10**9}, "model.layers is 1000000000: expected 1 to 100."),
        (ModelConfig, {"dim": 10**8}, "model.dim is 100000000: expected 1 to 16,384."),
        (ModelConfig, {"feedforward": 10**8}, "model.feedforward is 100000000: expected 1 to 65,536."),
        (ModelConfig, {"heads": 0}, "model.heads is 0: expected 1 to 16,384."),
        (ModelConfig, {"dim": 30}, "model.dim is 30, which is not a multiple of model.heads (4)"),
        (ModelConfig, {"dropout": 1}, "model.dropout is 1.0: expected a share from 0 to less than 1."),
        (ModelConfig, {"input_dropout": -0.1}, "model.input_dropout is -0.1: expected a share"),
        (ModelConfig, {"output_dropout": 2}, "model.output_dropout is 2.0: expected a share"),
        (ModelConfig, {"max_hops": 5}, "model.max_hops is 5: expected 1 to 4."),
        (ModelConfig, {"activation": "tanh"}, 'model.activation is "tanh": expected "relu" or "gelu".'),
        (TrainConfig, {"epochs": 0}, "train.epochs is 0: expected 1 to 10,000."),
        (TrainConfig, {"batch_nodes": 0}, "train.batch_nodes is 0: expected 1 to 1,000,000."),
        (TrainConfig, {"batch_nodes": 10**9}, "train.batch_nodes is 1000000000: expected 1 to 1,000,000."),
        (TrainConfig, {"valid_beam": 10**9}, "train.valid_beam is 1000000000: expected 1 to 100,000."),
        (TrainConfig, {"iterate_paths": 10**6}, "train.iterate_paths is 1000000: expected 1 to 1,000."),
        (TrainConfig, {"learning_rate": 0}, "train.learning_rate is 0.0: expected a number above 0, at most 1."),
        (TrainConfig, {"learning_rate": float("nan")}, "train.learning_rate is NaN: expected a number above 0"),
        (TrainConfig, {"smoothing": 0}, "train.smoothing is 0.0: expected the weight of the target"),
        (TrainConfig, {"mask_probability": 1}, "train.mask_probability is 1.0: expected a share from 0 to less"),
        (TrainConfig, {"warmup": 1.1}, "train.warmup is 1.1: expected a share from 0 to 1."),
        (TrainConfig, {"clip": float("inf")}, "train.clip is Infinity: expected 0 (no limit) or more."),
        (TrainConfig, {"clip": -1}, "train.clip is -1.0: expected 0 (no limit) or more."),
        (TrainConfig, {"weight_decay": -1}, "train.weight_decay is -1.0: expected a share from 0 to 1."),
        (TrainConfig, {"sampled_entities": -1}, "train.sampled_entities is -1: expected 0 (all compete) or more."),
        (TrainConfig, {"seed": -1}, "train.seed is -1: expected 0 to 2^63 - 1."),
        (
            TrainConfig,
            {"iterate_learning_rate": 0},
            "train.iterate_learning_rate is 0.0: expected a share above 0",
        ),
        (DecodeConfig, {"beam": 0}, "decode.beam is 0: expected 1 to 100,000."),
        (DecodeConfig, {"beam": 10**9}, "decode.beam is 1000000000: expected 1 to 100,000."),
        (DecodeConfig, {"aggregate": "mean"}, 'decode.aggregate is "mean": expected "sum" or "max" or "pool".'),
    ],
)
def test_a_value_without_sense_is_refused_by_its_key(config: Any, values: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingError, match=re.escape(words)):
        config(**values)


def test_a_model_too_short_for_the_paths_is_refused_with_both_keys() -> None:
    words = "model.max_hops is 2, but paths.hops is 3: raise model.max_hops or lower paths.hops."
    with pytest.raises(SettingError, match=re.escape(words)):
        Recipe(model=ModelConfig(max_hops=2))


def test_in_the_paper_s_recipes_and_in_small_graphs_all_entities_compete() -> None:
    sampling = {name for name in recipe_names() if load_recipe(name).train.sampled_entities}
    assert sampling == {"sparse", "medium", "dense", "large"}


def test_a_sample_of_entities_for_a_softmax_over_all_tokens_is_refused_with_both_keys() -> None:
    words = (
        "train.sampled_entities is 64, but model.typed is false, so that every token is predicted: set "
        "train.sampled_entities to 0 or model.typed to true."
    )
    with pytest.raises(SettingError, match=re.escape(words)):
        load_recipe("paper-nell23k", ["train.sampled_entities=64"])
    assert load_recipe("small", ["train.sampled_entities=64"]).train.sampled_entities == 64
