"""Torch modules as classifiers: their parameters become sites, their code stays theirs."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor, nn

from ppl_models.networks.network import ClassifierNetwork, Shape
from ppl_models.parts.repr import shows_briefly


@shows_briefly
@dataclass(frozen=True, eq=False)
class FromModule(ClassifierNetwork):
    r"""Torch module with one logit a component in its last layer, for rows of any shape.

    Its parameters become sites named after them (``conv1.weight`` is ``conv1_weight``), with the
    number of networks in front. The module itself is left as it is: it is evaluated with given
    weights, in evaluation mode (dropout and batch statistics do nothing), on rows as they come in
    the data. The first start has the weights that it came with, in every network; the others are
    drawn by its layers' own ``reset_parameters``.

    Args:
        module: any module that maps rows (n, \\*shape) to logits (n, C).

    Raises:
        ValueError: for something else, or a module without parameters.
    """

    module: nn.Module

    def __post_init__(self) -> None:
        if not isinstance(self.module, nn.Module):
            raise ValueError(f"FromModule: a torch module was expected, got {self.module!r}")
        if not any(True for _ in self.module.parameters()):
            raise ValueError(
                "FromModule: a torch module with parameters to train was expected, got one without"
            )
        # the caller's keeps its mode and its weights
        object.__setattr__(self, "module", copy.deepcopy(self.module).eval())

    @property
    def _names(self) -> dict[str, str]:
        return {name.replace(".", "_"): name for name, _ in self.module.named_parameters()}

    def sites(
        self, shapes: Sequence[Shape], num_outputs: int, num_networks: int
    ) -> dict[str, Shape]:
        own = dict(self.module.named_parameters())
        return {site: (num_networks, *own[name].shape) for site, name in self._names.items()}

    def start(
        self,
        shapes: Sequence[Shape],
        num_outputs: int,
        num_networks: int,
        num_starts: int,
        generator: Generator,
    ) -> dict[str, Tensor]:
        drawn: dict[str, list[Tensor]] = {site: [] for site in self._names}
        module = copy.deepcopy(self.module).cpu()
        for start in range(num_starts):
            for _ in range(num_networks):
                if start:
                    self._reset(module)
                values = dict(module.named_parameters())
                for site, name in self._names.items():
                    drawn[site].append(values[name].detach().double().clone())
        return {
            site: torch.stack(values).unflatten(0, (num_starts, num_networks))
            for site, values in drawn.items()
        }

    def _reset(self, module: nn.Module) -> None:
        """Reset the weights as the layers draw them, by torch's own random numbers."""
        for part in module.modules():
            reset: Any = getattr(part, "reset_parameters", None)
            if callable(reset):
                reset()

    def logits(self, inputs: Sequence[Tensor], weights: Mapping[str, Tensor]) -> Tensor:
        first = next(iter(weights.values()))
        num_starts, num_networks = first.shape[:2]
        rows = [torch.cat(list(inputs))] if num_networks == 1 else list(inputs)
        out = []
        for start in range(num_starts):
            for g, x in enumerate(rows):
                own = {name: weights[site][start, g] for site, name in self._names.items()}
                out.append(torch.func.functional_call(self.module, own, (x,)))
        logits = torch.stack(out)  # (R * G, n or V * n, C)
        if logits.dim() != 3:
            raise ValueError(
                "FromModule: logits (rows, components) were expected of the module, got shape"
                f" {tuple(out[0].shape)}"
            )
        return logits.reshape(num_starts, len(inputs), len(inputs[0]), logits.shape[-1])
