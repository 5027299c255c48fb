r"""Newton's method for the output layers of trained classifiers, on all rows.

Weights of components that overlap much hang on the data by a thread: along one direction of the
parameters the log-likelihood is a thousand times flatter than along others, and steps on
mini-batches, whose noise is larger than its slope there, end at random places of it. With the
hidden layers held, the logits are linear in known features h, :math:`b_v = \log\mathrm{softmax}(A_v
h_v)`, and few parameters are left. The score of a row with posterior r of the components is

.. math::
    \frac{\partial s_n}{\partial A_v^{(j)}} = \bigl(r_{nj} - \beta_v^{(j)}(x_{nv})\bigr) h_{nv} -
    \sum_i r_{ni} D_{vij}
    + \frac1V \Bigl( \sum_i r_{ni} D_{vij} - \sum_i w_i D_{vij} \Bigr), \qquad
    D_{vij} = \frac{\partial \log \phi_v^{(i)}}{\partial A_v^{(j)}} = \frac{E[\beta_v^{(i)}
    (\delta_{ij} - \beta_v^{(j)}) h_v]}{\phi_v^{(i)}}

(the bracket only where weights are geometric means; free weights have the score r - w). The mean
outer product F of the scores is the Fisher information, and a step goes along :math:`(F +
\lambda)^{-1}` times the mean score, halved until the log-likelihood of all training rows rises
(scoring with the damping of Levenberg).

Not every slope is worth a step: at the optimum of all possible rows, the mean score of N of them
along an axis of F with eigenvalue f still has the variance f/N, and hundreds of such steps together
fit noise. Of a slope :math:`s` with :math:`z^2 = N s^2 / f` the share that is no noise is about
:math:`(1 - 1/z^2)_+`, and so much of the step is taken (the positive part of the estimate of
Wiener's filter, as W. James and C. Stein 1961 shrink means).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from inference.programs.program import Params
from inference.structures.classifiers.gradients import Balance, Objective, RowTerms
from inference.structures.classifiers.networks import Rows, TrainedNetworks
from ppl_models.descriptions.classifiers import ClassifierDescription

MOST_PARAMETERS = 1500  # of a restart
LEAST_ROWS, ROWS_A_PARAMETER = 20_000, 20  # that the information is read from, evenly spaced
DAMPING = 1e-4  # of the mean diagonal of the information
MOST_NUMBERS = 2**22  # of scores in memory at once


@dataclass(frozen=True, eq=False)
class Direction:
    """Newton step of every restart.

    Args:
        networks: change of the output layers by site, (R, ...); logits: of free weights, (R, C).
        gain: what a quadratic log-likelihood would gain by it, in nats a row, (R,).
    """

    networks: Params
    logits: Tensor | None
    gain: Tensor


@dataclass(frozen=True, eq=False)
class OutputLayers:
    """Output layers of networks in training.

    Args:
        objective: what is maximised; networks: whose weights they are; rows: of the fit.
        chunk: rows in one evaluation.
    """

    objective: Objective
    networks: TrainedNetworks
    rows: Rows
    chunk: int

    @property
    def about(self) -> ClassifierDescription:
        """The model's description."""
        return self.objective.about

    def usable(self) -> bool:
        """Tell whether all networks have known features and few parameters behind them."""
        found = self._outputs(self.networks.params(self.networks.theta))
        return (
            found is not None
            and sum(slopes[0].numel() + intercepts[0].numel() for slopes, intercepts in found)
            <= MOST_PARAMETERS
        )

    def direction(
        self, index: Tensor, balance: Balance, log_weights: Tensor, prior_precision: float
    ) -> Direction:
        """Newton step from the present weights of the networks.

        ``index``: training rows; ``balance``, ``log_weights``: their statistics and the weights,
        (R, V, C) and (R, C); ``prior_precision``: of every weight of a network, a row.
        """
        params = self.networks.params(self.networks.theta)
        outputs = self._outputs(params)
        if outputs is None:
            raise RuntimeError("networks without known features have no output layers")
        slopes, score = self._first_pass(index, balance, log_weights)
        num_restarts, size = score.shape
        some = index[:: max(1, len(index) // max(LEAST_ROWS, ROWS_A_PARAMETER * size))]
        information = torch.zeros(
            num_restarts, size, size, dtype=torch.float64, device=score.device
        )
        for own in self._row_scores(some, balance, log_weights, slopes, size):
            information += (own.mT @ own).double()
        information /= len(some)
        values = torch.cat(
            [torch.cat([a, b.unsqueeze(-1)], -1).flatten(1) for a, b in outputs], 1
        ).double()  # (R, P without free weights)
        score[:, : values.shape[1]] -= prior_precision * values
        ridge = prior_precision + DAMPING * information.diagonal(dim1=1, dim2=2).mean(-1)
        curvature, axes = torch.linalg.eigh(information)  # (R, P), (R, P, P) with axes in columns
        along = (axes.mT @ score.unsqueeze(-1)).squeeze(-1)
        step = along / (curvature.clamp(min=0) + ridge.unsqueeze(-1))
        # N s^2 / lambda is the squared z-score
        step = step * (1 - 1 / (len(index) * along * step).clamp(min=1e-30)).clamp(min=0)
        gain = 0.5 * (step * along).sum(-1)
        step = (axes @ step.unsqueeze(-1)).squeeze(-1)
        logits = step[:, values.shape[1] :] if size > values.shape[1] else None
        changes: Params = {}
        begin = 0
        for group, (a, b) in zip(self.about.groups, outputs, strict=True):
            own = (
                step[:, begin : begin + a[0].numel() + b[0].numel()]
                .reshape(*a.shape[:-1], -1)
                .to(a)
            )
            begin += a[0].numel() + b[0].numel()
            zero = {name: torch.zeros_like(params[site]) for site, name in group.sites.items()}
            moved = group.network.with_outputs(
                zero, own[..., :-1].contiguous(), own[..., -1].contiguous()
            )
            changes |= {site: moved[name] for site, name in group.sites.items()}
        return Direction(changes, logits, gain)

    def _outputs(self, params: Params) -> list[tuple[Tensor, Tensor]] | None:
        found = [
            group.network.outputs({name: params[site] for site, name in group.sites.items()})
            for group in self.about.groups
        ]
        known = [own for own in found if own is not None]
        return known if len(known) == len(found) else None

    def _blocks(self, sizes: list[int]) -> list[slice]:
        """Places of each variate's parameters; variates that share a network share them."""
        out, begin = [slice(0, 0)] * len(sizes), 0
        for group in self.about.groups:
            for place, v in enumerate(group.variates):
                out[v] = slice(begin, begin + sizes[v])
                begin += 0 if group.is_shared and place < len(group.variates) - 1 else sizes[v]
        return out

    def _evaluated(
        self, index: Tensor, balance: Balance, log_weights: Tensor, chunk: int
    ) -> Iterator[tuple[Tensor, Tensor, list[Tensor], Tensor]]:
        """Outputs, posteriors, features with a one, and present variates of batches."""
        log_phi = balance.phi.log()
        for prepared, terms, _ in self.rows.batches(index, chunk):
            log_scores = self.networks.log_scores(prepared, False)
            scores, seen = log_scores.exp(), _seen(terms, log_scores)
            if terms.seen is not None:
                log_scores, scores = log_scores * seen, scores * seen
            posterior = self.objective.joint(log_scores, log_phi, log_weights, terms).softmax(-1)
            features = [
                torch.nn.functional.pad(own, (0, 1), value=1.0)
                for own in self.networks.features(prepared)
            ]
            yield scores, posterior, features, seen

    def _first_pass(
        self, index: Tensor, balance: Balance, log_weights: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        """The slopes D of every variate, (R, C, C, F + 1), and the mean score, (R, P)."""
        about, num = self.about, len(index)
        pulled: list[Tensor] = []
        first: list[Tensor] = []
        second: list[Tensor] = []
        shares: Tensor | float = 0.0
        total: Tensor | float = 0.0
        for scores, posterior, features, seen in self._evaluated(
            index, balance, log_weights, self.chunk
        ):
            for v, h in enumerate(features):
                beta, there = scores[:, v], seen[v]
                own = (
                    ((posterior - beta) * there).mT @ h,
                    beta.mT @ h,
                    ((beta.unsqueeze(-1) * beta.unsqueeze(-2)).flatten(-2)).mT @ h,
                )
                for kept, part in zip((pulled, first, second), own, strict=True):
                    if len(kept) == v:
                        kept.append(part.double())
                    else:
                        kept[v] += part.double()
            shares = shares + torch.einsum("rnc,vni->rvc", posterior, seen).double()
            total = total + posterior.sum(1).double()
        c = about.num_components
        slopes, parts = [], []
        for v in range(about.num_variates):
            count = num if balance.seen_share is None else num * float(balance.seen_share[v])
            slope = (
                torch.diag_embed(first[v].movedim(1, -1)).movedim(1, -1)
                - second[v].unflatten(1, (c, c))
            ) / (count * balance.phi[:, v, :, None, None].double())
            slopes.append(slope)  # (R, i, j, F + 1)
            pull = -shares[:, v] / num  # type: ignore[index]
            if balance.log_weights is None:
                pull = pull + (total / num - log_weights.double().exp()) / about.num_variates
            parts.append(pulled[v] / num + torch.einsum("ri,rijf->rjf", pull, slope))
        blocks = self._blocks([part[0].numel() for part in parts])
        size = _end(blocks)
        score = parts[0].new_zeros(len(parts[0]), size + (c if about.weights == "free" else 0))
        for block, part in zip(blocks, parts, strict=True):
            score[:, block] += part.flatten(1)
        if about.weights == "free":
            score[:, size:] = total / num - log_weights.double().exp()
        return slopes, score

    def _row_scores(
        self, index: Tensor, balance: Balance, log_weights: Tensor, slopes: list[Tensor], size: int
    ) -> Iterator[Tensor]:
        """Scores of some rows, (R, n, P)."""
        num_variates = self.about.num_variates
        blocks = self._blocks([slope[0, 0].numel() for slope in slopes])
        chunk = max(1, min(self.chunk, MOST_NUMBERS // (size * len(log_weights))))
        weights = log_weights.exp().unsqueeze(1)
        for scores, posterior, features, seen in self._evaluated(
            index, balance, log_weights, chunk
        ):
            out = posterior.new_zeros(*posterior.shape[:2], size)
            for v, (h, block, slope) in enumerate(zip(features, blocks, slopes, strict=True)):
                of_phi = slope.flatten(2).to(posterior)  # (R, i, j (F + 1))
                own = ((posterior - scores[:, v]).unsqueeze(-1) * h.unsqueeze(-2)).flatten(
                    2
                ) - posterior @ of_phi
                out[..., block] += own * seen[v]
                if balance.log_weights is None:
                    out[..., block] += (posterior - weights) @ of_phi / num_variates
            if self.about.weights == "free":
                out[..., _end(blocks) :] = posterior - weights
            yield out


def _end(blocks: list[slice]) -> int:
    """End of the last block."""
    return max(block.stop for block in blocks)


def _seen(terms: RowTerms, like: Tensor) -> Tensor:
    """Presence of variates, 1 or 0, (V, n, 1)."""
    if terms.seen is None:
        return like.new_ones(like.shape[1], like.shape[2], 1)
    return terms.seen.unsqueeze(-1)
