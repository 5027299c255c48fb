"""Classifiers without a network: lookup tables, and known densities."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ppl_models.networks.network import ClassifierNetwork, Shape
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import check_size, plain_fields

START_SCALE = 1.0  # of the logits of a random table


@dataclass(frozen=True)
class Lookup(ClassifierNetwork):
    r"""Table of logits for a variate of codes 0, ..., M - 1: any function of the code.

    Site ``table`` (G, M, C), one for each of G variates. With tables for all variates the model is
    latent class analysis.

    Args:
        num_values: M.

    Raises:
        ValueError: if that is not a positive integer.
    """

    num_values: int = 2

    def __post_init__(self) -> None:
        plain_fields(self)
        check_size("Lookup", "num_values", self.num_values)

    def sites(
        self, shapes: Sequence[Shape], num_outputs: int, num_networks: int
    ) -> dict[str, Shape]:
        if any(shape != (1,) for shape in shapes):
            raise ValueError(
                "InClassNet: Lookup() is for variates of one column of codes, got variates of"
                f" shape {list(shapes)}"
            )
        return {"table": (num_networks, self.num_values, num_outputs)}

    def start(
        self,
        shapes: Sequence[Shape],
        num_outputs: int,
        num_networks: int,
        num_starts: int,
        generator: Generator,
    ) -> dict[str, Tensor]:
        shape = (num_starts, *self.sites(shapes, num_outputs, num_networks)["table"])
        return {"table": START_SCALE * torch.randn(shape, generator=generator, dtype=torch.float64)}

    def output_dims(self) -> dict[str, int]:
        return {"table": -1}

    def probes(self, values: Tensor) -> Tensor:
        return (torch.arange(len(values)) % self.num_values).to(values)[:, None]

    def logits(self, inputs: Sequence[Tensor], weights: Mapping[str, Tensor]) -> Tensor:
        codes = torch.stack([x[:, 0] for x in inputs])  # (V, n)
        index = codes.nan_to_num().long()
        wrong = (codes != index) & ~codes.isnan() | (index < 0) | (index >= self.num_values)
        if wrong.any():
            raise ValueError(
                f"data: codes 0, ..., {self.num_values - 1} were expected of"
                f" Lookup({self.num_values}), got {float(codes[wrong][0]):g}"
            )
        table = weights["table"]
        if table.shape[1] > 1:
            variate = torch.arange(len(index), device=index.device)[:, None]
        else:
            variate = torch.zeros_like(index[:, :1])
        return table[:, variate, index]

    def features(self, inputs: Sequence[Tensor], weights: Mapping[str, Tensor]) -> Tensor:
        table = weights["table"]
        codes = torch.stack([x[:, 0] for x in inputs]).nan_to_num().long()
        shown = torch.nn.functional.one_hot(codes, self.num_values).to(table)
        return shown.expand(len(table), *codes.shape, -1)

    def outputs(self, weights: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        slopes = weights["table"].mT
        return slopes, torch.zeros_like(slopes[..., 0])

    def with_outputs(
        self, weights: Mapping[str, Tensor], slopes: Tensor, intercepts: Tensor
    ) -> dict[str, Tensor]:
        return {"table": (slopes + intercepts.unsqueeze(-1)).mT}


@shows_briefly
@dataclass(frozen=True, eq=False)
class KnownDensities(ClassifierNetwork):
    r"""Components whose densities in a variate are known up to their weights.

    :math:`\beta^{(i)}(x) \propto a_i f^{(i)}(x)`.

    The only parameters are the scales a, so that the other variates and the weights are what is
    learnt (the setting of the sPlot). Site ``log_scales`` log a (1, C).

    Args:
        log_density: rows of the variate (n, \*shape) -> log density of each component (n, C), up to
            what all components share.
    """

    log_density: Callable[[Tensor], Tensor]

    def __post_init__(self) -> None:
        if isinstance(self.log_density, type) or not callable(self.log_density):
            raise ValueError(
                "KnownDensities: log_density must be a function of the rows of the variate, got"
                f" {self.log_density!r}"
            )

    def sites(
        self, shapes: Sequence[Shape], num_outputs: int, num_networks: int
    ) -> dict[str, Shape]:
        if num_networks != len(shapes):
            raise ValueError(
                "InClassNet: known densities of one variate cannot be shared by all: give a tuple"
                " of networks, one a variate"
            )
        return {"log_scales": (num_networks, num_outputs)}

    def start(
        self,
        shapes: Sequence[Shape],
        num_outputs: int,
        num_networks: int,
        num_starts: int,
        generator: Generator,
    ) -> dict[str, Tensor]:
        shape = (num_starts, num_networks, num_outputs)
        return {"log_scales": torch.zeros(shape, dtype=torch.float64)}

    def logits(self, inputs: Sequence[Tensor], weights: Mapping[str, Tensor]) -> Tensor:
        scales = weights["log_scales"]
        with torch.no_grad():
            # (V, n, C)
            known = torch.stack([torch.as_tensor(self.log_density(x)) for x in inputs]).to(scales)
        wanted = (len(inputs), len(inputs[0]), scales.shape[-1])
        if known.shape != wanted:
            raise ValueError(
                "KnownDensities: log_density must give one number a row and component,"
                f" {wanted[1:]}, got {tuple(known.shape[1:])}"
            )
        return known + scales[..., None, :]
