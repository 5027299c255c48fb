r"""Multivariate normal components :math:`N(\mu_k, \Lambda_k^{-1})` with full covariances.

Of a row with entries o there and m missing, given component k,

.. math::

    x_m \mid x_o \sim N(\mu_m - \Lambda_{mm}^{-1} \Lambda_{mo} (x_o - \mu_o), \; \Lambda_{mm}^{-1}),

so that the sums of rows and of their outer products take the conditional mean in the place of a
missing entry, and the latter :math:`\Lambda_{mm}^{-1}` besides: without it variances of columns
with gaps would be too small (Ghahramani and Jordan 1994). Rows that lack the same entries are
worked out together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import cast

import numpy as np
import torch
from torch import Tensor

from inference.base.component_distributions.base import (
    ComponentDistribution,
    LinearRows,
    Rows,
    ends,
    log_diagonal,
    log_two_pi,
    outer_products,
    whitened,
)
from inference.base.component_distributions.covariance_families import family_precisions
from inference.base.degenerate import listed
from inference.base.structure import NamedEstimate
from inference.programs.coordinates import NormalScales
from inference.programs.program import Params
from ppl_models.descriptions.row_distributions import (
    LEAST_WIDTH,
    MultivariateNormal,
    RowDistribution,
    RowNormal,
    patterns_of,
)
from ppl_models.parts.covariances import CovarianceFamily

TAKES_PART = 0.1  # of the largest entry of a direction: a column with as much takes part in it
MOST_BY_CHANCE = 3.0  # gain of a thin slab of rows that chance explains, in p log N nats
MOST_OF_PRIOR = 0.5  # of a variance: beyond it the prior gives the width, not the rows
MOST_SHOWN = 6  # columns of a warning
ROWS_AT_ONCE = 2**20  # numbers of the rows whose covariance is taken
MOST_CANCELLED = 1e7  # terms of a log-density of a row, of which it is the sum
EMPTY = 1e-10  # expected rows below which a component keeps its parameters


@dataclass(frozen=True, eq=False)
class NormalRows(LinearRows):
    r"""Complete rows under multivariate normal components.

    With t a row about the centre and m a mean about it, the log-density is

    .. math::

        t^\top \Lambda m - \tfrac{1}{2} \sum_{ij} \Lambda_{ij} t_i t_j
        + \tfrac{1}{2} \log|\Lambda / 2\pi| - \tfrac{1}{2} m^\top \Lambda m ,

    linear in the features t and :math:`t_i t_j`, :math:`i \ge j`. Its terms are far larger than
    their sum where a component is thin: rows are then whitened about its mean instead.
    """

    @cached_property
    def features(self) -> Tensor:
        t, (first, second) = (self.data - self.centre).mT.contiguous(), self._lower
        return torch.cat([t, t[first].mul_(t[second])])

    @cached_property
    def _lower(self) -> tuple[Tensor, Tensor]:
        """Rows and columns of the lower triangle of a matrix, (J (J + 1) / 2,)."""
        first, second = torch.tril_indices(*[self.data.shape[1]] * 2, device=self.data.device)
        return first, second

    @cached_property
    def _packed(self) -> tuple[Tensor, Tensor]:
        """Places of the lower triangle among all entries of a matrix, and how often each counts."""
        first, second = self._lower
        often = torch.where(first == second, -0.5, -1.0).to(self.data)
        return first * self.data.shape[1] + second, often

    @cached_property
    def _places(self) -> Tensor:
        """Place of every two columns among the products, (J J,)."""
        size, (first, second) = self.data.shape[1], self._lower
        places = first.new_zeros(size, size)
        places[first, second] = places[second, first] = torch.arange(
            len(first), device=first.device
        )
        flat: Tensor = places.flatten()
        return flat

    @cached_property
    def _reach(self) -> Tensor:
        """Mean square of every centred column, times their number, (J,)."""
        size = self.data.shape[1]
        return self.features[:size].square().mean(-1) * size

    def part(self, rows: slice) -> NormalRows:
        part = cast("NormalRows", super().part(rows))
        part.__dict__.update({name: getattr(self, name) for name in ("_places", "_packed")})
        return part

    def weights(self, params: Params) -> tuple[Tensor, Tensor]:
        precisions, means = params["precisions"], params["means"] - self.centre
        slopes = (precisions @ means.unsqueeze(-1)).squeeze(-1)
        places, often = self._packed
        products = precisions.flatten(-2)[..., places] * often
        log_determinant = log_diagonal(torch.linalg.cholesky(precisions))
        constants = log_determinant - log_two_pi(means.shape[-1], means)
        return torch.cat([slopes, products], -1), constants - (slopes * means).sum(-1) / 2

    def log_densities(self, params: Params) -> Tensor:
        return self._whitened(params, super().log_densities(params))

    def log_joint(self, params: Params, before: Tensor) -> Tensor:
        return self._whitened(params, super().log_joint(params, before), before)

    def _whitened(self, params: Params, found: Tensor, before: Tensor | None = None) -> Tensor:
        """Densities of restarts with thin components worked out anew."""
        size = params["precisions"].diagonal(dim1=-2, dim2=-1) @ self._reach
        if float(size.max()) < MOST_CANCELLED:
            return found
        thin = (size.amax(-1) >= MOST_CANCELLED).nonzero().ravel()
        own = {name: params[name][thin] for name in ("means", "precisions")}
        anew = self.distribution.log_densities(own, self.data)
        found[thin] = (anew if before is None else anew + before[thin]).mT
        return found

    def statistics(self, share: Tensor, params: Params) -> NormalStatistics:
        size, sums = self.data.shape[1], self.sums(share)
        squares = sums[..., size:][..., self._places].unflatten(-1, (size, size))
        return NormalStatistics(sums[..., :size], squares, self.centre)


@dataclass(frozen=True)
class NormalStatistics:
    """Expected sufficient statistics of normal components: sums over rows.

    Args:
        sums: responsibility-weighted sums of the centred rows, (R, K, J).
        squares: of their outer products, (R, K, J, J).
        centre: about which they are taken, (J,).
    """

    sums: Tensor
    squares: Tensor
    centre: Tensor = field(metadata={"sum": False})


class WholeRowDistribution(ComponentDistribution):
    """Whole-row distributions with a precision matrix for each component."""

    site = "means"
    spread = "covariance"  # name of the inverse of the precisions

    @property
    def width(self) -> int:
        return self.about.num_items**2

    def ridge(self, like: Tensor) -> Tensor:
        """Inverse scales of the prior of the precisions, a diagonal (J,)."""
        assert isinstance(self.about.component, RowDistribution)
        return _ridge(
            self.about.component.regularization, self.about.widths, like.dtype, like.device
        )

    def num_free(self, params: Params) -> int:
        """Number of free parameters, symmetric matrices counted once."""
        k, j = params[self.site].shape
        return (
            sum(value.numel() for name, value in params.items() if name != "precisions")
            + k * j * (j + 1) // 2
        )

    def moved(self, params: Params, centres: Tensor, widths: Tensor) -> Params:
        new = params | {
            self.site: centres + widths * params[self.site],
            "precisions": params["precisions"] / (widths.unsqueeze(-1) * widths),
        }
        return new | ({"skews": widths * params["skews"]} if "skews" in params else {})

    def features(self, params: Params) -> Tensor:
        means = self.means(params)
        locations = means / means.new_tensor(self.about.widths)
        spreads = params["precisions"].diagonal(dim1=-2, dim2=-1).log() / -2
        return torch.cat([locations, spreads], -1)

    def means(self, params: Params) -> Tensor:
        """Means of the components, (K, J)."""
        return params[self.site]

    def named_estimates(self) -> dict[str, NamedEstimate]:
        """Means or locations, and the inverses of the precisions."""
        return {
            self.site.removesuffix("s"): NamedEstimate(self.site, None, torch.clone),
            self.spread: NamedEstimate("precisions", None, torch.linalg.inv, False),
        }

    def expected_rows(self, params: Params, shares: Tensor) -> Tensor:
        return shares @ self.means(params)

    def inverse_spread(self, params: Params) -> Tensor:
        """Inverse spread matrices (K, J, J), large in a direction of collapse."""
        return params["precisions"]

    def _is_dense(self, width: Tensor, count: Tensor, total: Tensor) -> bool:
        r"""Tell whether a component is narrower than chance makes it.

        A component of n rows whose variance in one direction is w times the data's gains
        :math:`(n/2) \log(1/w)` nats there. Among N rows of one normal distribution EM picks rows
        that lie in a thin slab: their gain reached 2.04 times :math:`p \log N`, p the number of
        parameters of a component, in normal, heavy-tailed, skewed and rounded rows
        (100 to 3,000 rows in 2 to 8 dims, up to 6 components; ``benchmarks/thin_components.py``).
        Beyond three times :math:`p \log N` the slab is there.

        Args:
            width: w; count: expected rows; total: expected rows of all components.
        """
        size = self.about.num_items
        chance = size * (size + 3) / 2 * math.log(max(float(total), 2.0))
        return bool(count * width.log() / -2 > MOST_BY_CHANCE * chance)

    def spread_of(self, data: Tensor, weights: Tensor | None = None) -> Tensor:
        """Covariance matrix of all rows, (J, J)."""
        return covariance(self.statistic(data)[0], weights)

    def faults(
        self,
        spread_of_all: Callable[[], Tensor],
        params: Params,
        counts: Tensor,
        floor: Tensor,
        names: Sequence[str],
    ) -> list[tuple[str, ...]]:
        assert isinstance(self.about.component, RowDistribution)
        prior = self.about.component.regularization
        few = (counts < self.about.num_items + 1) & (counts >= 1)
        # else the prior gives the covariance its width
        few &= (counts < 2) | (prior < LEAST_WIDTH * counts)
        spread = spread_of_all()
        # the data may have no width in a direction themselves
        values, vectors = torch.linalg.eigh(spread)
        factor = vectors * values.clamp(min=0).sqrt()  # of their covariance C = L L^T
        inverse = self.inverse_spread(params)
        inner = factor.mT @ inverse @ factor
        sentences: list[list[str]] = [[] for _ in counts]
        is_narrow = torch.linalg.eigvalsh(inner)[..., -1].reciprocal() < LEAST_WIDTH
        for r, k in is_narrow.nonzero().tolist():
            ratios, along = torch.linalg.eigh(inner[r, k])
            width = ratios[-1].reciprocal()  # least variance, as a share of the data's
            narrow = inverse[r, k] @ factor @ along[:, -1]  # that direction v, (J,)
            prior_part = (narrow.square() @ self.ridge(narrow)) / ratios[-1]
            is_of_rows = bool(prior_part < MOST_OF_PRIOR * counts[r, k])
            if not (is_of_rows and self._is_dense(width, counts[r, k], counts[r].sum())):
                sentences[r].append(
                    f"component {k} has no width in one direction: {float(width):.1g} of the data's"
                    f" variance there, on {float(counts[r, k]):.3g} rows"
                )
        totals = counts.sum(-1).tolist()
        if prior < LEAST_WIDTH * max(totals):
            widths = torch.tensor(self.about.widths, dtype=torch.float64)
            least, along = torch.linalg.eigh(spread.double().cpu() / widths / widths.unsqueeze(-1))
            for own, total in zip(sentences, totals, strict=True):
                if prior < LEAST_WIDTH * total:
                    own += self._repeated(along[:, least <= prior / total].abs(), names)
        return resting_on(few, counts, sentences)

    @staticmethod
    def _repeated(flat: Tensor, names: Sequence[str]) -> list[str]:
        """Sentence on the columns that take part in flat directions (J, n), if there are any."""
        if not flat.numel():
            return []
        involved = [
            names[j] for j in (flat > TAKES_PART * flat.amax(0)).any(-1).nonzero().ravel().tolist()
        ]
        rest = len(involved) - MOST_SHOWN
        shown = listed([*involved[:MOST_SHOWN], *([f"{rest} more"] if rest > 0 else [])])
        return [
            f"columns {shown} repeat each other or add up to each other, so that covariances have"
            " no width but what the prior gives them: leave out a column"
        ]


class NormalDistribution(WholeRowDistribution):
    """Component distributions of :class:`ppl_models.MultivariateNormal`."""

    equation = "Normal(μ_{k}, covariance Σ_{k})"

    @property
    def width(self) -> int:
        return self.about.num_items * (self.about.num_items + 3) // 2

    @cached_property
    def _family(self) -> CovarianceFamily | None:
        """Family of the covariances, None for full ones."""
        assert isinstance(self.about.component, MultivariateNormal)
        return self.about.component.family(self.about.num_components, self.about.num_items)

    @property
    def shown(self) -> str:
        if self._family is None:
            return self.equation
        return f"Normal(μ_{{k}}, covariance {self._family.equation})"

    def num_free(self, params: Params) -> int:
        if self._family is None:
            return super().num_free(params)
        return params["means"].numel() + self._family.num_free

    def statistic(self, data: Tensor) -> tuple[Tensor, Tensor | None]:
        """Rows with missing entries at their column's mean, and the mask of entries."""
        missing = data.isnan()
        if not bool(missing.any()):
            return data, None
        return torch.where(missing, data.nanmean(-2, keepdim=True).nan_to_num(0.0), data), (
            ~missing
        ).to(data)

    def rows(self, data: Tensor, centre: Tensor) -> Rows:
        if data.dim() == 3 or bool(data.isnan().any()):
            return super().rows(data, centre)
        return NormalRows(self, data, centre)

    def log_densities(self, params: Params, data: Tensor) -> Tensor:
        if bool(data.isnan().any()):
            if data.dim() == 3:
                return torch.stack(
                    [self.log_densities(_at(params, r), rows) for r, rows in enumerate(data)]
                )
            distribution = RowNormal(
                params["means"].unsqueeze(-2), precision_matrix=params["precisions"].unsqueeze(-3)
            )
            return distribution.log_prob(data).mT
        factor = torch.linalg.cholesky(params["precisions"])  # Lambda = L L^T
        distance = whitened(factor, params["means"], data).square().sum(-1)
        constant = log_diagonal(factor) - log_two_pi(data.shape[-1], data)
        if data.dim() == 3:
            return (constant.unsqueeze(-1) - distance / 2).mT
        return (constant - distance / 2).movedim(0, -2)

    def statistics(
        self, data: Tensor, responsibilities: Tensor, centre: Tensor, params: Params | None
    ) -> NormalStatistics:
        t, weight = data - centre, responsibilities.mT  # (R, K, n)
        if not bool(data.isnan().any()):
            return NormalStatistics(weight @ t, outer_products(weight, t), centre)
        if params is None:
            t = t.nan_to_num(0.0)  # at a start: the middle of the column
            return NormalStatistics(weight @ t, outer_products(weight, t), centre)
        if data.dim() == 3:
            parts = [
                self.statistics(
                    rows, responsibilities[r : r + 1], centre[r], _at(params, r, keep=True)
                )
                for r, rows in enumerate(data)
            ]
            return NormalStatistics(
                torch.cat([part.sums for part in parts]),
                torch.cat([part.squares for part in parts]),
                centre,
            )
        sums, squares = torch.zeros_like(params["means"]), torch.zeros_like(params["precisions"])
        for rows, seen in patterns_of(data.isnan()):
            filled, spread = _completed(params, data[rows], seen)
            weight_p, x = weight[..., rows], filled - centre  # (R, K, n), (R, K, n, J)
            sums = sums + (weight_p.unsqueeze(-2) @ x).squeeze(-2)
            squares = (
                squares
                + x.mT @ (weight_p.unsqueeze(-1) * x)
                + weight_p.sum(-1)[..., None, None] * spread
            )
        return NormalStatistics(sums, squares, centre)

    def completed_rows(self, params: Params, shares: Tensor, data: Tensor) -> Tensor:
        out = self.expected_rows(params, shares)
        if not bool(data.isnan().any()):
            return out
        for rows, seen in patterns_of(data.isnan()):
            filled, _ = _completed(params, data[rows], seen)  # (K, n, J)
            out[rows] = torch.where(
                seen, out[rows], torch.einsum("nk,knj->nj", shares[rows], filled)
            )
        return out

    def normal_scales(self, params: Params) -> NormalScales | None:
        """Variances of the columns, and those left by regressing each column on the others."""
        if self._family is not None:
            return None
        k, j = params["means"].shape
        number = torch.arange(k * j).reshape(k, j)
        precisions = torch.full((k, j, j), -1).diagonal_scatter(k * j + number, dim1=-2, dim2=-1)
        used = torch.ones(2, k * j)
        used[1] = j  # a mean, and coefficients of the other columns
        return NormalScales(
            _variances, used.flatten(), {"means": number}, reciprocals={"precisions": precisions}
        )

    def m_step(
        self, statistics: NormalStatistics, counts: Tensor, params: Params, floor: Tensor
    ) -> Params:
        number = counts.clamp(min=EMPTY).unsqueeze(-1)
        centred = statistics.sums / number
        means = (centred + statistics.centre).clamp(*ends(self.about.limits, centred))
        outer = centred.unsqueeze(-1) * centred.unsqueeze(-2)
        scatter = torch.addcmul(statistics.squares, number.unsqueeze(-1), outer, value=-1)
        family, ridge = self._family, self.ridge(scatter)
        empty = (counts <= EMPTY).unsqueeze(-1)
        if is_some_empty := bool(empty.any()):
            means = torch.where(empty, params["means"], means)
        if family is not None:
            scatter, rows = scatter + torch.diag(ridge), number.squeeze(-1)
            before = params["precisions"]
            precisions = family_precisions(family, scatter, rows, before, empty.squeeze(-1))
            return {"means": means, "precisions": precisions}
        precisions = posterior_precisions(scatter, number, ridge)
        if is_some_empty:
            precisions = torch.where(empty.unsqueeze(-1), params["precisions"], precisions)
        return {"means": means, "precisions": precisions}

    def scores(self, params: Params, data: Tensor, rng: np.random.Generator) -> np.ndarray:
        if bool(data.isnan().any()):
            raise ValueError(
                "data: the noise of MultivariateNormal components is known of complete rows only,"
                " and some of these have gaps: drop these rows"
            )
        # Lambda = L L^T, so L^T (x - mu) is standard
        factor = torch.linalg.cholesky(params["precisions"])
        return torch.einsum("nkj,kji->nki", data.unsqueeze(-2) - params["means"], factor).numpy()


@lru_cache(maxsize=64)  # M-steps ask for them
def _ridge(
    regularization: float, widths: tuple[float, ...], dtype: torch.dtype, device: torch.device
) -> Tensor:
    return regularization * torch.tensor(widths, dtype=dtype, device=device).square()


def _variances(params: Params) -> Tensor:
    """Variances of every column, marginal and given the others, (2, K, J)."""
    covariances = torch.cholesky_inverse(torch.linalg.cholesky(params["precisions"]))
    return torch.stack([covariances, params["precisions"].reciprocal()]).diagonal(dim1=-2, dim2=-1)


def _at(params: Params, restart: int, keep: bool = False) -> Params:
    """Parameters of one restart, without the leading dim unless that is kept."""
    return {
        name: value[restart : restart + 1] if keep else value[restart]
        for name, value in params.items()
    }


def _completed(params: Params, data: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Conditional means in the gaps, (..., K, n, J), and covariances, (..., K, J, J).

    Args:
        params: (..., K, ...); data: (n, J); seen: which entries are there, (J,).
    """
    means, precisions, lost = params["means"].unsqueeze(-2), params["precisions"], ~seen
    filled = data.nan_to_num(0.0).expand(*means.shape[:-2], *data.shape).clone()
    spread = torch.zeros_like(precisions)
    if bool(lost.any()):
        places = lost.nonzero().ravel()
        factor = torch.linalg.cholesky(precisions[..., lost, :][..., lost])
        off = data[:, seen] - means[..., seen]  # (..., K, n, O)
        filled[..., lost] = (
            means[..., lost]
            - torch.cholesky_solve(precisions[..., lost, :][..., seen] @ off.mT, factor).mT
        )
        spread[..., places.unsqueeze(-1), places] = torch.cholesky_inverse(factor)
    return filled, spread


def covariance(x: Tensor, weights: Tensor | None = None) -> Tensor:
    """Covariance matrix of the rows of x, (J, J), over their number, a part of them at a time.

    Args:
        x: (N, J); weights: how often each row counts, (N,); None for once.
    """
    often = x.new_ones(1).expand(len(x)) if weights is None else weights.to(x)
    mean = (often @ x) / often.sum()
    few = max(1, ROWS_AT_ONCE // x.shape[1])
    parts = [
        (part - mean).mT @ ((part - mean) * own.unsqueeze(-1))
        for part, own in zip(x.split(few), often.split(few), strict=True)
    ]
    return torch.stack(parts).sum(0) / often.sum()


def posterior_precisions(scatter: Tensor, number: Tensor, ridge: Tensor) -> Tensor:
    """The mode of the Wishart posterior with J + 1 degrees of freedom, (R, K, J, J).

    Args:
        scatter: about the means, (R, K, J, J); number: expected rows, (R, K, 1).
        ridge: of the prior, (J,).
    """
    whole = scatter + torch.diag(ridge)
    factor, failed = torch.linalg.cholesky_ex(whole)  # of its lower triangle
    inverse = torch.cholesky_inverse(factor)
    if bool(failed.any()):
        inverse = torch.linalg.inv((whole + whole.mT) / 2)
        inverse = (inverse + inverse.mT) / 2
    return number.unsqueeze(-1) * inverse


def resting_on(
    few: Tensor, counts: Tensor, sentences: Sequence[Sequence[str]]
) -> list[tuple[str, ...]]:
    """Sentences of each restart, and those on its components of few rows, (R, K)."""
    out = [list(own) for own in sentences]
    for r, k in few.nonzero().tolist():
        out[r].append(f"component {k} rests on {float(counts[r, k]):.2g} rows")
    return [tuple(own) for own in out]
