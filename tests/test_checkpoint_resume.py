"""Optimizers go through a checkpoint, and the run continues as if nothing had been."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from squire.core.tensors import load_checkpoint, save_checkpoint
from squire.errors import CheckpointError
from squire.training.trainer import load_optimizer, optimizer_tensors


def tiny_net() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 1))


def optimizer_of(net: nn.Module, kind: type[torch.optim.Adam], backwards: bool = False) -> torch.optim.Adam:
    parameters = list(net.parameters())
    return kind(parameters[::-1] if backwards else parameters, lr=0.01, weight_decay=0.1)


def train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int, first: int = 0) -> None:
    for step in range(first, first + steps):
        torch.manual_seed(step)  # as the trainer does: draws depend on the step alone
        optimizer.zero_grad()
        net(torch.randn(16, 4)).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW])
@pytest.mark.parametrize("backwards", [False, True])
def test_ten_steps_are_five_and_five_more_bit_for_bit(
    tmp_path: Path, kind: type[torch.optim.Adam], backwards: bool
) -> None:
    straight = tiny_net()
    train(straight, optimizer_of(straight, kind), 10)

    net = tiny_net()
    optimizer = optimizer_of(net, kind)
    train(net, optimizer, 5)
    memory = optimizer_tensors(optimizer, dict(net.named_parameters()))
    assert {key for key in memory if key.startswith("0.weight")} == {
        "0.weight.step",
        "0.weight.exp_avg",
        "0.weight.exp_avg_sq",
    }
    parts = {"model.": net.state_dict(), "optimizer.": memory}
    arrays = {
        prefix + name: tensor.detach().numpy() for prefix, part in parts.items() for name, tensor in part.items()
    }
    save_checkpoint(tmp_path, "last", arrays, {})

    resumed = tiny_net()
    train(resumed, optimizer_of(resumed, kind), 1)  # whatever was there is replaced
    optimizer = optimizer_of(resumed, kind, backwards)
    found = load_checkpoint(tmp_path, "last")
    model, memory = (
        {name: torch.from_numpy(array) for name, array in found.part(prefix).items()}
        for prefix in ("model.", "optimizer.")
    )
    resumed.load_state_dict(model)
    load_optimizer(optimizer, dict(resumed.named_parameters()), memory)
    train(resumed, optimizer, 5, first=5)
    for name, value in straight.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name


def test_an_optimizer_before_its_first_step_has_nothing_to_remember() -> None:
    net = tiny_net()
    names = dict(net.named_parameters())
    memory = optimizer_tensors(optimizer_of(net, torch.optim.Adam), names)
    assert memory == {}
    load_optimizer(optimizer_of(net, torch.optim.Adam), names, memory)


def test_a_loaded_optimizer_does_not_write_into_the_checkpoint() -> None:
    net = tiny_net()
    names, optimizer = dict(net.named_parameters()), optimizer_of(net, torch.optim.Adam)
    train(net, optimizer, 1)
    memory = {key: tensor.clone() for key, tensor in optimizer_tensors(optimizer, names).items()}
    before = {key: tensor.clone() for key, tensor in memory.items()}
    load_optimizer(optimizer, names, memory)
    train(net, optimizer, 1)
    assert all(torch.equal(memory[key], before[key]) for key in before)


def test_the_optimizer_of_another_model_is_refused() -> None:
    net = tiny_net()
    names, optimizer = dict(net.named_parameters()), optimizer_of(net, torch.optim.Adam)
    with pytest.raises(CheckpointError, match=r"'9\.weight\.step' belongs to no parameter of this model\. Resume"):
        load_optimizer(optimizer, names, {"9.weight.step": torch.tensor(1.0)})
    with pytest.raises(CheckpointError, match=r"'0\.weight\.exp_avg' has shape \(8, 5\), its parameter \(8, 4\)"):
        load_optimizer(optimizer, names, {"0.weight.exp_avg": torch.zeros(8, 5)})
