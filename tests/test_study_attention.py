"""The attention that is shown is the attention that the model has."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from study_cases import HOSTILE, a_run, study
from test_plots import PNG, drawn
from torch import Tensor, nn
from training_cases import VOCAB

from squire.errors import SettingError, UnknownName
from squire.graph.labels import Labels
from squire.model.recipe import load_recipe
from squire.model.transformer import Layer, Transformer
from squire.reasoning.attention import attention_weights, heads_of, visible_tokens
from squire.search.trained import TrainedModel

__all__ = ["drawn"]  # a fixture
LAYERS, HEADS = 3, 4
TOKENS = torch.tensor([2, VOCAB.first_relation + 1, VOCAB.first_relation, 5, VOCAB.first_relation + 4, 7])


def a_model(norm_first: bool) -> Transformer:
    torch.manual_seed(0)
    sizes = [f"model.layers={LAYERS}", "model.dim=32", f"model.heads={HEADS}", "model.feedforward=32"]
    recipe = load_recipe("small", [*sizes, f"model.norm_first={str(norm_first).lower()}"])
    model = Transformer(VOCAB, recipe.model).eval()
    with torch.no_grad():
        for layer in model.layers:
            assert isinstance(layer, Layer)
            layer.to_qkv.weight *= 5  # attention that is far from even
    return model


@pytest.mark.parametrize("norm_first", [True, False])
def test_weights_times_values_are_what_each_layer_makes(norm_first: bool) -> None:
    model = a_model(norm_first)
    weights = attention_weights(model, TOKENS)
    assert weights.shape == (LAYERS, HEADS, len(TOKENS), len(TOKENS))
    values: list[Tensor] = []
    made: list[Tensor] = []
    for layer in model.layers:
        assert isinstance(layer, Layer)

        def note_values(_: nn.Module, __: object, qkv: Tensor) -> None:
            values.append(heads_of(qkv, HEADS)[2, 0])  # (head, token, dim / heads)

        def note_made(_: nn.Module, __: object, out: Tensor) -> None:
            made.append(out[0])

        layer.to_qkv.register_forward_hook(note_values)
        layer.from_heads.register_forward_hook(note_made)
    with torch.no_grad():
        model(TOKENS[None], torch.arange(len(TOKENS))[None], visible_tokens(len(TOKENS))[None])
        for number, layer in enumerate(model.layers):
            assert isinstance(layer, Layer)
            seen = (weights[number] @ values[number]).transpose(0, 1).flatten(1)  # (token, dim)
            torch.testing.assert_close(
                layer.from_heads.weight @ seen.T + layer.from_heads.bias[:, None], made[number].T
            )
    assert float(weights.max(-1).values.mean()) > 0.5  # not the same for any weights


def test_shares_add_up_and_nobody_sees_what_comes_later() -> None:
    weights = attention_weights(a_model(True), TOKENS).numpy()
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)
    later = np.triu(np.ones((len(TOKENS), len(TOKENS)), bool), 1)
    later[0, 1] = False  # the query's two tokens see each other
    assert (weights[:, :, later] == 0).all()
    assert (weights[:, :, ~later] > 0).all()


def test_the_model_is_left_as_it_was() -> None:
    model = a_model(True)
    attention_weights(model, TOKENS)
    for layer in model.layers:
        assert isinstance(layer, Layer)
        assert not layer.to_qkv._forward_hooks


def test_the_data_are_layers_by_heads_by_tokens_by_tokens(tmp_path: Path) -> None:
    done = study("attention", a_run(), HOSTILE, "from", "--answer", "Northland", "--json")
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    tokens = data["tokens"]
    assert tokens[:2] == [HOSTILE, "from"]
    assert tokens[-1] == data["answer"] == "Northland"
    weights = np.array(data["weights"])
    assert weights.shape == (2, 2, len(tokens), len(tokens))
    model = TrainedModel.load(a_run()).model
    labels = TrainedModel.load(a_run()).graph.labels
    ids = [
        labels.entity_id(token) if token in labels.entities else _relation(model, labels, token)
        for token in tokens
    ]
    np.testing.assert_allclose(weights, attention_weights(model, torch.tensor(ids)).numpy(), rtol=1e-6)
    assert data["signature"].startswith("made|study:attention|model:")


def _relation(model: Transformer, labels: Labels, token: str) -> int:
    vocab, inverse = model.vocab, token.endswith("⁻¹")
    relation = labels.relation_id(token.removesuffix("⁻¹"))
    return int(vocab.first_relation + relation + inverse * vocab.num_relations)


def test_a_picture_has_a_map_a_layer_with_the_names_of_the_tokens(tmp_path: Path, drawn: list[Figure]) -> None:
    file = tmp_path / "new" / "attention.png"
    done = study("attention", a_run(), HOSTILE, "from", "--answer", "Northland", "-o", file)
    assert done.exit_code == 0, done.output
    assert file.read_bytes().startswith(PNG)
    data = json.loads(file.with_suffix(".json").read_text())
    maps = [axes for axes in drawn[0].axes if axes.images]
    assert [axes.get_title() for axes in maps] == ["layer 1, mean over heads", "layer 2, mean over heads"]
    shown = [label.get_text().replace("\\", "") for label in maps[0].get_xticklabels()]
    assert shown == data["tokens"]
    assert [label.get_text().replace("\\", "") for label in maps[0].get_yticklabels()] == data["tokens"][2:]
    image = np.asarray(maps[1].images[0].get_array())
    mean = np.array(data["weights"])[1].mean(0)[2:]
    np.testing.assert_allclose(image[mean > 0], mean[mean > 0])
    assert "attention to" in maps[0].get_xlabel()
    assert "attention of" in maps[0].get_ylabel()


def test_a_layer_and_a_head_can_be_chosen(tmp_path: Path, drawn: list[Figure]) -> None:
    chosen = ["--layer", 2, "--attention-head", 1, "-o", tmp_path / "a.svg"]
    done = study("attention", a_run(), "p01", "lives in", "--answer", "c3", *chosen)
    assert done.exit_code == 0, done.output
    assert [axes.get_title() for axes in drawn[0].axes if axes.images] == ["layer 2, head 1"]
    shown = study("attention", a_run(), "?", "lives in", "c3", "--layer", 2)
    assert shown.exit_code == 0, shown.output
    assert "layer 2" in shown.stdout
    assert "layer 1" not in shown.stdout
    assert "lives in⁻¹" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (["p01", "from", "--layer", "3"], SettingError, "layer=3: expected a number from 1 to 2"),
        (["p01", "from", "--attention-head", "3"], SettingError, "attention_head=3: expected a number from 1"),
        (["p01", "live in"], UnknownName, "lives in"),
        (["p01", "from", "--answer", "nobody"], UnknownName, "nobody"),
        (["p01", "from", "--answer", "p07", "--beam", "1"], SettingError, "answer='p07': no path leads there"),
        (["p01", "from", "-o", "a.jpg"], SettingError, "expected a name that ends in .png"),
    ],
)  # fmt: skip
def test_mistakes_are_told(arguments: list[str], kind: type[Exception], words: str) -> None:
    failed = study("attention", a_run(), *arguments).exception
    assert isinstance(failed, kind)
    assert words in str(failed)
