"""Networks in training: weights of all restarts as one vector, outputs, gradients.

A training step of a small network on few rows is ruled by the number of operations and not by their
size. The dense networks that most models have are therefore evaluated and differentiated by hand,
all variates and restarts as one batch of matrix products, and their gradient is written in place.
Any other network goes through automatic differentiation, and gives the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from inference.programs.program import Params
from inference.structures.classifiers.gradients import RowTerms
from ppl_models.descriptions.classifiers import ClassifierDescription
from ppl_models.networks import Dense, rows_of, side_by_side


class TrainedNetworks:
    """Networks of any kind, by automatic differentiation.

    Args:
        about: the model's description; start: weights (R, ...) by site.

    ``theta`` (P,) are all weights, ``owner`` (P,) the restart that each entry belongs to.
    """

    def __init__(self, about: ClassifierDescription, start: Params) -> None:
        self.about = about
        self._site_shapes = {site: tuple(start[site].shape) for site in about.network_sites}
        values = [start[site] for site in about.network_sites]
        num = len(values[0])
        self.theta = self.packed(start)
        self.owner = torch.cat(
            [
                torch.arange(num, device=value.device).repeat_interleave(value[0].numel())
                for value in values
            ]
        )
        self._leaf: Tensor | None = None
        self._output: Tensor | None = None

    def prepare(self, inputs: Sequence[Tensor]) -> Any:
        r"""Prepare standardised rows by variate, (n, \*shape), for evaluation."""
        return list(inputs)

    def some(self, prepared: Any, begin: int, end: int) -> Any:
        """Select consecutive prepared rows."""
        return [x[begin:end] for x in prepared]

    def log_scores(self, prepared: Any, keep: bool) -> Tensor:
        """Log-outputs (R, V, n, C); ``keep`` the graph for the gradient."""
        self._leaf = self.theta.detach().requires_grad_() if keep else None
        with torch.set_grad_enabled(keep):
            output = self._evaluate(self.theta if self._leaf is None else self._leaf, prepared)
        self._output = output if keep else None
        return output.detach()

    def _evaluate(self, theta: Tensor, prepared: Any) -> Tensor:
        params, out = self.params(theta), list(prepared)
        for group in self.about.groups:
            weights: Mapping[str, Tensor] = {
                name: params[site] for site, name in group.sites.items()
            }
            log_scores = group.network.logits(
                [prepared[v] for v in group.variates], weights
            ).log_softmax(-1)
            for place, v in enumerate(group.variates):
                out[v] = log_scores[:, place]
        return torch.stack(out, 1)

    def add_gradient(
        self, slope: Tensor, log_scores: Tensor, scores: Tensor, gradient: Tensor, add: bool
    ) -> None:
        """Differentiate a slope of the log-outputs into ``gradient``, (P,)."""
        if self._leaf is None or self._output is None:
            raise RuntimeError("a gradient was asked for of outputs that were not kept")
        (own,) = torch.autograd.grad(self._output, self._leaf, slope)
        if add:
            gradient += own
        else:
            gradient.copy_(own)

    def params(self, theta: Tensor) -> Params:
        """Weights (R, ...) by site of the program."""
        parts = theta.split([math.prod(shape) for shape in self._site_shapes.values()])
        return {
            site: part.view(shape)
            for (site, shape), part in zip(self._site_shapes.items(), parts, strict=True)
        }

    def packed(self, params: Params) -> Tensor:
        """Pack weights (R, ...) by site into one vector, (P,)."""
        return torch.cat([params[site].reshape(-1) for site in self.about.network_sites])

    def features(self, prepared: Any) -> list[Tensor]:
        """Features that the logits of every variate are linear in, (R, n, F)."""
        about, params = self.about, self.params(self.theta)
        out: list[Tensor] = [params[about.network_sites[0]]] * about.num_variates
        for group in about.groups:
            found = group.network.features(
                [prepared[v] for v in group.variates],
                {name: params[site] for site, name in group.sites.items()},
            )
            if found is None:
                raise RuntimeError("features were asked for of networks that do not know theirs")
            for place, v in enumerate(group.variates):
                out[v] = found[:, place]
        return out


class DenseNetworks(TrainedNetworks):
    """Dense networks of one architecture, R restarts of G as R G matrices a layer.

    Args:
        about: the model's description; start: weights (R, ...) by site.
    """

    def __init__(self, about: ClassifierDescription, start: Params) -> None:
        self.about, group = about, about.groups[0]
        first = start["layer_1_weights"]
        self.num_restarts = len(first)
        self.num_networks = group.num_networks
        self.num_variates = about.num_variates
        self.num_layers = len(group.shapes) // 2
        batch = self.num_restarts * self.num_networks
        owner = []
        self.shapes: list[tuple[int, ...]] = []
        for value in self._pieces(start):
            self.shapes.append((batch, *value.shape[-2:]))
            owner.append(
                torch.arange(self.num_restarts, device=first.device).repeat_interleave(
                    value[0].numel()
                )
            )
        self.theta, self.owner = self.packed(start), torch.cat(owner)
        self._layers = self._views(self.theta)
        self._of_gradient: tuple[Tensor, list[Tensor]] | None = None
        self._kept: list[Tensor] = []

    def _pieces(self, params: Params) -> list[Tensor]:
        """Weight matrices in the order of the vector."""
        layers = range(1, self.num_layers + 1)
        return [
            value
            for layer in layers
            for value in (
                params[f"layer_{layer}_weights"].mT,
                params[f"layer_{layer}_intercepts"].unsqueeze(-2),
            )
        ]

    def packed(self, params: Params) -> Tensor:
        return torch.cat([value.reshape(-1) for value in self._pieces(params)])

    def _views(self, theta: Tensor) -> list[Tensor]:
        return [
            part.view(shape)
            for part, shape in zip(
                theta.split([math.prod(shape) for shape in self.shapes]), self.shapes, strict=True
            )
        ]

    def prepare(self, inputs: Sequence[Tensor]) -> Tensor:
        """Rows of all variates side by side, (V, n, D)."""
        width = self.shapes[0][1]
        rows = side_by_side(inputs, width)  # (V, n, D)
        return rows.contiguous()

    def some(self, prepared: Tensor, begin: int, end: int) -> Tensor:
        return prepared[:, begin:end]

    def log_scores(self, prepared: Tensor, keep: bool) -> Tensor:
        """Log-outputs (R, V, n, C); ``keep`` the layers for the gradient."""
        hidden = prepared
        if self.num_networks == 1 < self.num_variates:
            hidden = hidden.reshape(1, -1, hidden.shape[-1])
        if self.num_restarts > 1:
            hidden = hidden.repeat(self.num_restarts, 1, 1)
        layers, kept = self._layers, [hidden]
        for layer in range(0, 2 * self.num_layers - 2, 2):
            hidden = torch.baddbmm(layers[layer + 1], hidden, layers[layer]).relu_()
            kept.append(hidden)
        logits = torch.baddbmm(layers[-1], hidden, layers[-2])
        self._kept = kept if keep else []
        return logits.view(self.num_restarts, self.num_variates, -1, logits.shape[-1]).log_softmax(
            -1
        )

    def add_gradient(
        self, slope: Tensor, log_scores: Tensor, scores: Tensor, gradient: Tensor, add: bool
    ) -> None:
        if self._of_gradient is None or self._of_gradient[0] is not gradient:
            self._of_gradient = (gradient, self._views(gradient))
        places = self._of_gradient[1]
        # with respect to the logits
        upstream = torch.addcmul(slope, scores, slope.sum(-1, keepdim=True), value=-1)
        upstream = upstream.view(len(self._layers[0]), -1, upstream.shape[-1])
        for layer in range(2 * self.num_layers - 2, -1, -2):
            hidden = self._kept[layer // 2]
            if add:
                places[layer].baddbmm_(hidden.mT, upstream)
                places[layer + 1].add_(upstream.sum(1, keepdim=True))
            else:
                torch.bmm(hidden.mT, upstream, out=places[layer])
                torch.sum(upstream, 1, keepdim=True, out=places[layer + 1])
            if layer:
                upstream = torch.bmm(upstream, self._layers[layer].mT).mul_(hidden > 0)

    def params(self, theta: Tensor) -> Params:
        out, layers = {}, self._views(theta)
        for layer in range(self.num_layers):
            weights, intercepts = layers[2 * layer], layers[2 * layer + 1]
            lead = (self.num_restarts, self.num_networks)
            out[f"layer_{layer + 1}_weights"] = weights.mT.reshape(
                *lead, weights.shape[2], weights.shape[1]
            )
            out[f"layer_{layer + 1}_intercepts"] = intercepts.reshape(*lead, intercepts.shape[2])
        return out


def networks_of(about: ClassifierDescription, start: Params) -> TrainedNetworks:
    """Networks of a model with their weights from ``start`` (R, ...)."""
    if len(about.groups) == 1 and type(about.groups[0].network) is Dense:
        return DenseNetworks(about, start)
    return TrainedNetworks(about, start)


MOST_RESIDENT = 2**28  # numbers that are kept on the device as a whole
BLOCK = 2**22  # numbers of rows that are fetched at a time
LOOKED_AT = 100_000  # rows of which means and standard deviations are those of all, evenly spaced


class Rows:
    """Rows of a fit, standardised, for the networks.

    Args:
        about: the model's description; data: as the model checks it.
        statistics: the scaling sites, without restarts.
        networks: which prepare them; labels: of the rows, (N,) or None.
        device, dtype: of the networks.
        most_resident: numbers kept on the device as a whole; more are fetched block by block.
    """

    def __init__(
        self,
        about: ClassifierDescription,
        data: Any,
        statistics: Params,
        networks: TrainedNetworks,
        labels: Tensor | None,
        like: Tensor,
        most_resident: int = MOST_RESIDENT,
    ) -> None:
        self.about, self.networks, self.like = about, networks, like
        self.parts = rows_of(data, about.shapes)
        self.width = sum(math.prod(shape) for shape in about.shapes)
        self.statistics = {name: value.to(like) for name, value in statistics.items()} | {
            "pseudo_weights": like
        }
        self.labels = None if labels is None else labels.to(like.device)
        self.is_resident = self.num_rows * self.width <= most_resident
        self._whole: tuple[list[Tensor], Tensor | None] | None = (
            self._standardised(slice(None)) if self.is_resident else None
        )

    @property
    def num_rows(self) -> int:
        """Number of rows, N."""
        return len(self.parts[0])

    @property
    def block_rows(self) -> int:
        """Number of rows fetched at a time."""
        return max(1, BLOCK // self.width)

    def _standardised(self, index: Tensor | slice) -> tuple[list[Tensor], Tensor | None]:
        inputs, seen = self.about.standardised(
            [x[index].to(self.like.device) for x in self.parts], self.statistics
        )
        return inputs, None if seen is None else seen.to(self.like)

    def seen(self, index: Tensor) -> Tensor:
        """Presence of variates in some rows, 1 or 0, (V, n)."""
        terms = self.fetch(index)[1]
        whole = torch.ones(
            len(self.parts), len(index), dtype=self.like.dtype, device=self.like.device
        )
        return whole if terms.seen is None else terms.seen

    def fetch(self, index: Tensor) -> tuple[Any, RowTerms]:
        """Fetch some rows, prepared, with their terms besides the networks' outputs.

        Args:
            index: (n,), on the CPU.
        """
        labels = None if self.labels is None else self.labels[index.to(self.like.device)]
        if self._whole is None:
            order = index.argsort()  # a file is read from its beginning to its end
            back = order.argsort()
            inputs, seen = self._standardised(index[order])
            back = back.to(self.like.device)
            inputs, seen = [x[back] for x in inputs], None if seen is None else seen[:, back]
        else:
            place = index.to(self.like.device)
            inputs = [x[place] for x in self._whole[0]]
            seen = None if self._whole[1] is None else self._whole[1][:, place]
        return self.networks.prepare(inputs), RowTerms(seen, labels)

    def batches(self, index: Tensor, size: int) -> Iterator[tuple[Any, RowTerms, slice]]:
        """Iterate over batches of the rows of ``index``, with their places in it."""
        step = max(size, self.block_rows // size * size)
        for begin in range(0, len(index), step):
            block = index[begin : begin + step]
            prepared, terms = self.fetch(block)
            if len(block) <= size:
                yield prepared, terms, slice(begin, begin + len(block))
                continue
            for first in range(0, len(block), size):
                last = min(first + size, len(block))
                yield (
                    self.networks.some(prepared, first, last),
                    _some(terms, first, last),
                    slice(begin + first, begin + last),
                )


def _some(terms: RowTerms, begin: int, end: int) -> RowTerms:
    if terms.seen is None and terms.labels is None:
        return terms
    return RowTerms(
        None if terms.seen is None else terms.seen[:, begin:end],
        None if terms.labels is None else terms.labels[begin:end],
    )


def input_statistics(about: ClassifierDescription, data: Any, like: Tensor) -> Params:
    """Means and standard deviations that standardise the columns.

    Of each column; of an image (and of all variates of a shared network) one for all its entries; 0
    and 1 for networks that take rows as they are.

    Of more than 100,000 rows, of so many evenly spaced ones.

    ``about``: the model's description; ``data``: as the model checks it; ``like``: for dtype and
    device.
    """
    centres, scales = [], []
    parts = rows_of(data, about.shapes)
    step = max(1, -(-len(parts[0]) // LOOKED_AT))
    looked = {v: parts[v][::step].double() for v, scaled in enumerate(about.is_scaled) if scaled}
    for v, x in looked.items():
        size = math.prod(about.shapes[v])
        if about.is_shared or len(about.shapes[v]) > 1:
            of = torch.cat([y.flatten() for y in looked.values()]) if about.is_shared else x
            known = of[~of.isnan()]
            centre, spread = known.mean().expand(size), known.std(correction=0).expand(size)
        else:
            centre = x.nanmean(0)
            spread = (x - centre).square().nanmean(0).sqrt()
        centres.append(centre.nan_to_num())
        scales.append(torch.where(spread > 0, spread, torch.ones_like(spread)).nan_to_num(nan=1.0))
    if not looked:
        return {}
    return dict(
        zip(
            about.scaling_sites,
            (torch.cat(centres).to(like), torch.cat(scales).to(like)),
            strict=True,
        )
    )
