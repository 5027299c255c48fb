r"""Dense networks of rectified linear units, several variates as one batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ppl_models.networks.network import ClassifierNetwork, Shape
from ppl_models.parts.validation import check_size, plain_fields


@dataclass(frozen=True)
class Dense(ClassifierNetwork):
    r"""Dense layers with rectified linear units between them.

    .. math::

        h_0 = x, \qquad h_l = \max(0, W_l h_{l-1} + c_l), \qquad \text{logits} = W_{L+1} h_L +
        c_{L+1}

    Sites, with G networks (one a variate, or 1 that all share) and widths :math:`H_0 = D, H_1, ...,
    H_{L+1} = C`: ``layer_1_weights`` :math:`W_1` (G, H_1, D), ``layer_1_intercepts`` :math:`c_1`
    (G, H_1), and so on. Where variates have different numbers of columns, D is the largest, and the
    weights of columns that a variate does not have are zero. The columns are standardised first
    (see :class:`ppl_models.InClassNet`).

    Args:
        hidden: widths of the hidden layers; () for a softmax-linear classifier.

    Raises:
        ValueError: for widths that are not positive integers.
    """

    hidden: tuple[int, ...] = (32, 32, 32)

    def __post_init__(self) -> None:
        plain_fields(self)
        if isinstance(self.hidden, int):
            object.__setattr__(self, "hidden", (self.hidden,))
        if not isinstance(self.hidden, tuple):
            raise ValueError(
                f"Dense: hidden must be a tuple of widths such as (32, 32, 32), got {self.hidden!r}"
            )
        for width in self.hidden:
            check_size("Dense", "each width of hidden", width)

    scales_inputs = True

    def widths(self, shapes: Sequence[Shape], num_outputs: int) -> tuple[int, ...]:
        """Numbers of units of every layer, from the columns to the logits."""
        return (max(math.prod(shape) for shape in shapes), *self.hidden, num_outputs)

    def sites(
        self, shapes: Sequence[Shape], num_outputs: int, num_networks: int
    ) -> dict[str, Shape]:
        widths = self.widths(shapes, num_outputs)
        out: dict[str, Shape] = {}
        for layer in range(1, len(widths)):
            out[f"layer_{layer}_weights"] = (num_networks, widths[layer], widths[layer - 1])
            out[f"layer_{layer}_intercepts"] = (num_networks, widths[layer])
        return out

    def num_unused(self, shapes: Sequence[Shape], num_outputs: int, num_networks: int) -> int:
        """Number of weights of columns that a variate does not have."""
        width, first = self.widths(shapes, num_outputs)[:2]
        return 0 if num_networks == 1 else first * sum(width - math.prod(shape) for shape in shapes)

    def start(
        self,
        shapes: Sequence[Shape],
        num_outputs: int,
        num_networks: int,
        num_starts: int,
        generator: Generator,
    ) -> dict[str, Tensor]:
        """Initial weights by He et al., the last layer's by Glorot and Bengio.

        Intercepts are such that units of the first layer bend all over the range of standardised
        columns. Sources: He et al. (2015), doi:10.1109/ICCV.2015.123; Glorot and Bengio (2010).
        """
        sizes, out = [math.prod(shape) for shape in shapes], {}
        for name, shape in self.sites(shapes, num_outputs, num_networks).items():
            if name.endswith("_weights"):
                if shape[2] != max(sizes) or num_networks == 1:
                    fan_in = torch.full((num_networks,), shape[2])
                else:
                    fan_in = torch.tensor(sizes)
                variance: Tensor | float = 2.0 / fan_in[:, None, None]
                if name == f"layer_{len(self.hidden) + 1}_weights":
                    variance = 2.0 / (shape[1] + shape[2])
                draw = torch.randn((num_starts, *shape), generator=generator, dtype=torch.float64)
                out[name] = draw * torch.as_tensor(variance, dtype=torch.float64).sqrt()
            else:
                draw = torch.rand((num_starts, *shape), generator=generator, dtype=torch.float64)
                bent = name == "layer_1_intercepts" and self.hidden
                out[name] = (2 * draw - 1) * (1.0 if bent else 0.0)
        if num_networks > 1:
            for v, size in enumerate(sizes):
                out["layer_1_weights"][:, v, :, size:] = 0.0
        return out

    def output_dims(self) -> dict[str, int]:
        last = len(self.hidden) + 1
        return {f"layer_{last}_weights": -2, f"layer_{last}_intercepts": -1}

    def logits(self, inputs: Sequence[Tensor], weights: Mapping[str, Tensor]) -> Tensor:
        last = len(self.hidden) + 1
        hidden = self._hidden(inputs, weights)
        logits = (
            hidden @ weights[f"layer_{last}_weights"].mT
            + weights[f"layer_{last}_intercepts"][..., None, :]
        )
        return logits.reshape(len(logits), len(inputs), -1, logits.shape[-1])

    def _hidden(self, inputs: Sequence[Tensor], weights: Mapping[str, Tensor]) -> Tensor:
        """Hidden units of the last layer, (R, V, n, F), or (R, 1, V n, F) if shared."""
        first = weights["layer_1_weights"]
        hidden = side_by_side(inputs, first.shape[-1])[None]  # (1, V, n, D)
        if first.shape[1] == 1:
            hidden = hidden.flatten(1, 2)[:, None]  # all variates as rows of the one network
        for layer in range(1, len(self.hidden) + 1):
            hidden = (
                hidden @ weights[f"layer_{layer}_weights"].mT
                + weights[f"layer_{layer}_intercepts"][..., None, :]
            ).relu()
        return hidden

    def features(self, inputs: Sequence[Tensor], weights: Mapping[str, Tensor]) -> Tensor:
        hidden = self._hidden(inputs, weights)
        return hidden.reshape(len(hidden), len(inputs), -1, hidden.shape[-1]).expand(
            len(weights["layer_1_weights"]), -1, -1, -1
        )

    def outputs(self, weights: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        last = len(self.hidden) + 1
        return weights[f"layer_{last}_weights"], weights[f"layer_{last}_intercepts"]

    def with_outputs(
        self, weights: Mapping[str, Tensor], slopes: Tensor, intercepts: Tensor
    ) -> dict[str, Tensor]:
        last = len(self.hidden) + 1
        outputs = {f"layer_{last}_weights": slopes, f"layer_{last}_intercepts": intercepts}
        return dict(weights) | outputs


def side_by_side(inputs: Sequence[Tensor], width: int) -> Tensor:
    """Concatenate variates as vectors of one width, zeros beyond their own, (V, n, width)."""
    flat = [x.flatten(1) for x in inputs]
    return torch.stack(
        [
            x if x.shape[1] == width else torch.nn.functional.pad(x, (0, width - x.shape[1]))
            for x in flat
        ]
    )
