"""The state of an optimizer as named tensors, as a checkpoint stores it."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torch.optim import Optimizer

from squire.errors import CheckpointError


def optimizer_tensors(optimizer: Optimizer, names: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state of Adam or AdamW for each parameter, as NAME.step, NAME.exp_avg, NAME.exp_avg_sq.

    `names` is `dict(model.named_parameters())`. Learning rates are not included: they follow from the recipe and
    the step.
    """
    return {
        f"{name}.{slot}": value
        for name, parameter in names.items()
        for slot, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer(optimizer: Optimizer, names: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Inverse of `optimizer_tensors`, for an optimizer of the same parameters, in any order, on any device."""
    slots: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, slot = key.rpartition(".")
        _check_slot(key, tensor, names.get(name))
        slots.setdefault(name, {})[slot] = tensor.clone()
    name_of = {parameter: name for name, parameter in names.items()}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state = {
        number: slots[name_of[parameter]]
        for number, parameter in enumerate(parameters)
        if name_of[parameter] in slots
    }
    # torch moves each slot to the right device, and numbers parameters in the order of the groups.
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _check_slot(key: str, tensor: Tensor, parameter: Tensor | None) -> None:
    if parameter is None:
        raise CheckpointError(f"optimizer state {key!r} belongs to no parameter of this model. {_OTHER_MODEL}")
    if tensor.dim() and tensor.shape != parameter.shape:
        raise CheckpointError(
            f"optimizer state {key!r} has shape {tuple(tensor.shape)}, its parameter {tuple(parameter.shape)}. "
            f"{_OTHER_MODEL}"
        )


_OTHER_MODEL = "Resume with the recipe and the graph that the run started with."
