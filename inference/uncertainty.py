r"""Standard errors of a point estimate from the observed information.

For any program whose latents can be summed out.

With row log-likelihoods :math:`\ell_i(\theta)`, latents summed out, the observed information at the
estimate is

.. math::

    I = - \sum_i \nabla^2 \ell_i(\hat\theta) \quad\text{or}\quad I = \sum_i s_i s_i^\top, \; s_i =
    \nabla \ell_i(\hat\theta),

both by automatic differentiation, and the covariance of the estimate is :math:`I^{-1}`; the
sandwich :math:`H^{-1} (\sum_i s_i s_i^\top) H^{-1}` is the one that stays right when the model is
wrong. Coordinates: probabilities on the logit scale, positive numbers (variances) on the log scale,
probability vectors as log-ratios to their last entry (to the largest where the last is as good as
zero), all others as they are. Entries that are exactly zero (off the graph, or removed by a
penalty) are held there, and what is said is conditional on that graph.

Where parameters have priors that are not flat (the weak normal ones of an encoder's loadings), the
estimate is the maximum of the log-posterior, and minus the second derivatives of the log-prior are
added to either I: :math:`I^{-1}` is then the covariance of the normal approximation of the
posterior. For flat priors nothing changes. What the data leave undetermined is refused with any
prior.

Asymptotic: it needs an objective with an interior maximum. Estimates that a sparsity penalty shrank
are refused (:func:`inference.selection.polish` refits them), and so are estimates on a bound. Where
a graph was chosen with the same data (a plain fit of an encoder), that choice is not in the
intervals: they are those of somebody who knew the graph.

Source: T. A. Louis (1982), Finding the observed information matrix when using the EM algorithm,
doi:10.1111/j.2517-6161.1982.tb01203.x; H. White (1982), doi:10.2307/1912526.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from inference.base.outcome import EstimateWarning
from inference.base.streaming.row_blocks import RowBlocks
from inference.base.structure import normal_scales
from inference.fitting.record import FitRecord
from inference.identifiability.fisher import InformationReport, information_from_scores
from inference.identifiability.scores import (
    coordinates_of,
    derivatives,
    programs_of,
    remembered,
    row_scores,
    rows_like,
    rows_of_fit,
    scores_of_drawn,
    simulated_data,
)
from inference.programs.coordinates import Coordinates, NormalScales
from inference.programs.curvature import (
    Undetermined,
    generalised_inverse,
    inverse_information,
    involved,
    minus_hessian,
    refuse_flat,
)
from inference.programs.program import Params
from ppl_models.data.tables import checks_data
from ppl_models.parts.repr import listed, shows_briefly
from ppl_models.parts.surface import promised as _promised
from ppl_models.parts.validation import Seed, as_seed, check_size

__all__ = [
    "Uncertainty",
    "check_information",
    "distance_to_optimum",
    "observed_information",
    "standard_errors",
]
__dir__ = _promised(__name__)

SILENT = 1e-9  # share of the squared scores of single entries, below which a direction has none
ENOUGH_ROWS, LEAST_ROWS = 10, 3  # an entry, of squared scores
KINDS = ("hessian", "scores", "sandwich")


@shows_briefly
@dataclass(frozen=True, eq=False)
class Uncertainty:
    """Covariance of an estimate.

    Args:
        names: (P,), free entries such as ``loadings_1[0,2]``.
        coordinates: how the free vector and the parameters belong together.
        estimate: (P,), on the scale of the coordinates.
        covariance: (P, P), on that scale; coefficients are those of standardised covariates.
        kind: "hessian", "scores" or "sandwich".
        num_rows: rows of the data.
        scales: variances of normal distributions among the parameters, whose intervals know how few
            rows there are; None where there are none.
    """

    names: tuple[str, ...]
    coordinates: Coordinates
    estimate: Tensor
    covariance: Tensor
    kind: str
    num_rows: int
    scales: NormalScales | None = None

    @property
    def standard_errors(self) -> Params:
        """Standard errors by site name, in units and shape of the parameter (delta method).

        NaN where an entry is held.
        """
        return self.coordinates.spread(self.estimate, self.covariance)

    def intervals(self, level: float = 0.95) -> dict[str, tuple[Tensor, Tensor]]:
        """Return confidence limits by site name; NaN where held.

        Normal on the scale of the coordinates, then taken back.

        Chances with few rows behind them have Wilson's limits
        (:meth:`~inference.programs.coordinates.Coordinates.limits`). Variances of normal items, and
        the means, loadings and intercepts of these, have those of chi-square and of Student's t
        (:class:`~inference.programs.coordinates.NormalScales`), which are wider than the normal
        ones where rows are few. Standard errors, and draws of
        :class:`~inference.engines.laplace.Laplace`, stay those of the normal approximation.

        Raises:
            ValueError: if the level is not in (0, 1).
        """
        if not 0 < level < 1:
            raise ValueError(f"intervals: level must lie in (0, 1), got {level!r}")
        width = float(
            torch.distributions.Normal(0.0, 1.0).icdf(
                torch.tensor((1 + level) / 2, dtype=torch.float64)
            )
        )
        limits = self.coordinates.limits(self.estimate, self.covariance, width)
        if self.scales is not None:
            for site, (low, high) in self.scales.limits(
                level, self.coordinates, self.estimate, self.covariance
            ).items():
                limits[site] = (
                    torch.where(low.isnan(), limits[site][0], low),
                    torch.where(high.isnan(), limits[site][1], high),
                )
        return limits

    def delta(self, function: Callable[[Params], Tensor]) -> tuple[Tensor, Tensor]:
        """Return value and standard error of a differentiable function of the parameters."""
        free = self.estimate.clone().requires_grad_()
        with torch.enable_grad():
            value = function(self.coordinates.params(free))
            flat = value.reshape(-1)
            rows = [torch.autograd.grad(entry, free, retain_graph=True)[0] for entry in flat]
        jacobian = torch.stack(rows)
        variance = ((jacobian @ self.covariance) * jacobian).sum(-1)
        return value.detach(), variance.clamp(min=0).sqrt().reshape(value.shape)


@torch.enable_grad()  # also where the caller has switched gradients off
def standard_errors(
    fit: FitRecord, data: Any, kind: str = "hessian", hold_bounds: bool = False
) -> Uncertainty:
    """Standard errors of an estimate at its own data.

    The cost is one derivative of the log-likelihood of all rows a parameter, two where a prior is
    not flat. A row of a weighted fit counts as so many rows; weights that make up for how rows were
    sampled need a design-based error instead.

    Args:
        fit: a converged maximum-likelihood fit, or a penalised one refitted on its graph.
        data: the data of the fit, in memory or as
            :class:`~inference.base.streaming.row_blocks.RowBlocks`, of which one block is held at a
            time.
        kind: "hessian" (observed information), "scores" (sum of squared scores) or "sandwich". With
            N rows for P entries the inverse of a sum of squared scores is too large, by the factor
            N / (N - P - 1) on average where scores are normal (Muirhead 1982,
            doi:10.1002/9780470316559) and by more where most rows have none of an
            entry: fewer than ten rows an entry are warned of, fewer than three refused.
        hold_bounds: entries on a bound are held there instead of refused; their standard errors are
            NaN.

    Raises:
        ValueError: if the estimates are shrunk by a penalty or belong to a model whose likelihood
            gives none (saying why), if they lie on a bound, or the information is singular or not
            positive definite, naming the parameters; for an unknown kind, for latents that cannot
            be summed out, for a fit without a point estimate; for "scores" of fewer than three
            rows an entry.

    Warns:
        EstimateWarning: for "scores" of fewer than ten rows an entry.

    Example:
        >>> import numpy as np
        >>> from inference import fit
        >>> from inference.uncertainty import standard_errors
        >>> from ppl_models import Mixture
        >>> rng = np.random.default_rng(0)
        >>> answers = (rng.random((200, 4)) < rng.choice([0.2, 0.2, 0.9], (200, 1))).astype(int)
        >>> classes = fit(Mixture(2), answers)
        >>> standard_errors(classes, answers).standard_errors["weights"].round(decimals=2)
        tensor([0.0400, 0.0400], dtype=torch.float64)
    """
    if kind not in KINDS:
        raise ValueError(f"standard_errors: kind must be one of {KINDS}, got {kind!r}")
    data = rows_of_fit(fit, data)
    coordinates = _coordinates(fit, data)
    held = coordinates.at_bound()
    if not checks_data(fit.model) and not isinstance(data, RowBlocks):
        held += coordinates.at_zero(functools.partial(_log_posterior, fit, data))
    if held and not hold_bounds:
        raise ValueError(
            f"standard_errors: estimates on the bound of their interval: {listed(held)}; a"
            " normal approximation does not hold there. Use hold_bounds=True for the others given"
            " these, or the bootstrap"
        )
    coordinates = coordinates.without(held)
    if not coordinates.names:
        raise ValueError(
            "standard_errors: every estimate is known or lies on the bound of its interval"
        )
    prior = _curvature_of_prior(fit, data, coordinates)
    is_flat = not bool((prior != 0).any())
    num_rows, scores, hessian = _summed(
        fit, data, coordinates, "sandwich" if kind == "hessian" and not is_flat else kind
    )
    if kind == "scores":
        _mind_few_rows(num_rows, len(coordinates.names))
    information = scores if hessian is None else hessian
    if information is None:
        raise ValueError("standard_errors: data without rows")
    if not is_flat and scores is not None:
        silent = refuse_flat(scores, information, prior, coordinates.names)
        if silent.shape[1]:
            _refuse_undetermined(fit, data, coordinates, silent)
    covariance = inverse_information(information + prior, coordinates.names)
    if kind == "sandwich" and scores is not None:
        covariance = covariance @ scores @ covariance
    return Uncertainty(
        coordinates.names,
        coordinates,
        coordinates.vector(),
        covariance,
        kind,
        num_rows,
        None if fit.tied else normal_scales(fit.structure, fit.params),
    )


def _log_posterior(fit: FitRecord, data: Any, params: Params) -> Tensor:
    programs = list(programs_of(fit, data))
    likelihoods = [program.log_marginal(params) for program in programs]
    return torch.stack(likelihoods).sum() + programs[0].log_prior(params)


def _mind_few_rows(num_rows: int, num_entries: int) -> None:
    """Warn of squared scores of few rows an entry, and refuse those of very few.

    Raises:
        ValueError: for fewer than LEAST_ROWS an entry.
    """
    if num_rows >= ENOUGH_ROWS * num_entries:
        return
    words = (
        f'standard_errors: kind="scores" expected {ENOUGH_ROWS} rows an entry, got {num_rows:,}'
        f" rows for {num_entries:,} entries, whose squared scores make standard errors too large"
    )
    if num_rows < LEAST_ROWS * num_entries:
        raise ValueError(f'{words}: take kind="hessian", the observed information')
    excess = math.sqrt(num_rows / (num_rows - num_entries - 1)) - 1
    warnings.warn(
        f'{words}, by about {excess:.0%} or more: kind="hessian" takes the observed information',
        EstimateWarning,
        stacklevel=3,
    )


def _refuse_undetermined(
    fit: FitRecord, data: Any, coordinates: Coordinates, silent: Tensor
) -> None:
    """Refuse directions (P, F) along which the distribution of the data does not change.

    Judged by the scores of rows drawn from the fit.

    No row of the data has a score along them, and yet the log-likelihood is bent: items that are
    equal in all of these rows are determined all the same, parameters that can change together
    without any change of the distribution are not, and their curvature is that of the way that they
    take.
    """
    try:
        rows = rows_like(fit, next(iter(data)) if isinstance(data, RowBlocks) else data)
        if rows.dim() == 2:  # rows that are as good as never drawn have a score too
            generator = torch.Generator().manual_seed(0)
            columns = [column[torch.randperm(len(rows), generator=generator)] for column in rows.mT]
            rows = torch.cat([rows, torch.stack(columns, -1)])
        drawn = scores_of_drawn(fit, rows, coordinates)
    except (ValueError, RuntimeError):  # a program that cannot draw rows, or too many entries
        return
    lengths = drawn.norm(dim=0)
    values, turns = torch.linalg.eigh((drawn @ silent).mT @ (drawn @ silent))
    flat = (
        silent
        @ turns[:, values <= SILENT * float((lengths.unsqueeze(-1) * silent).square().sum(0).max())]
    )
    if flat.shape[1]:
        raise Undetermined(
            "standard_errors: the distribution of the data does not change along"
            f" {involved(coordinates.names, flat * lengths.unsqueeze(-1))}: no data determine them,"
            " and the prior alone would be reported"
        )


@shows_briefly
@dataclass(frozen=True, eq=False)
class ToOptimum:
    r"""Distance of an estimate from the optimum of its objective, by slope and curvature.

    With g the slope of the log-posterior at the estimate and :math:`I` its observed information, a
    step of Newton's method leads by :math:`I^{-1} g` to the optimum, which lies :math:`\frac12
    g^\top I^{-1} g` higher. Both are right up to the third derivatives: far from the optimum they
    give an order of magnitude.

    Args:
        objective: what is left to gain, in nats.
        steps: of every entry, in its standard errors, (P,).
        likelihood_steps: the same towards the maximum of the likelihood, were the priors flat,
            (P,).
        names: (P,), the entries.
    """

    objective: float
    steps: Tensor
    likelihood_steps: Tensor
    names: tuple[str, ...]

    @property
    def largest(self) -> tuple[float, str]:
        """The longest way of an entry, in standard errors, and its name."""
        place = int(self.steps.abs().argmax())
        return float(self.steps[place].abs()), self.names[place]


def distance_to_optimum(fit: FitRecord, data: Any, found: Uncertainty | None = None) -> ToOptimum:
    """Return the distance of an estimate from the optimum, in nats and standard errors.

    What more iterations could still change.

    Args:
        fit: by maximum likelihood or maximum posterior, stopped anywhere near an optimum.
        data: the data of the fit.
        found: :func:`standard_errors` of the fit, by "hessian", where they are at hand; entries on
            a bound are held there if None.

    Raises:
        ValueError: as :func:`standard_errors`; naming what curves up, where the estimate is not
            near a maximum.
    """
    data = rows_of_fit(fit, data)
    found = standard_errors(fit, data, hold_bounds=True) if found is None else found
    free = found.estimate.detach().clone().requires_grad_()
    slope, of_prior, first = torch.zeros_like(free), torch.zeros_like(free), 0
    for program in programs_of(fit, data):
        with torch.enable_grad():
            if (
                first == 0
                and (prior := program.log_prior(found.coordinates.params(free))).requires_grad
            ):
                of_prior = torch.autograd.grad(prior, free)[0]
            rows = program.log_marginal_rows(found.coordinates.params(free))
            often = (
                1.0
                if fit.row_weights is None
                else fit.row_weights[first : first + len(rows)].to(rows)
            )
            total, first = (rows * often).sum(), first + len(rows)
        slope = slope + torch.autograd.grad(total, free)[0]
    errors = found.covariance.diagonal().clamp(min=0).sqrt().clamp(min=torch.finfo(free.dtype).tiny)
    step, of_likelihood = found.covariance @ (slope + of_prior), found.covariance @ slope
    return ToOptimum(
        max(0.0, float((slope + of_prior) @ step) / 2),
        step / errors,
        of_likelihood / errors,
        found.names,
    )


@shows_briefly
@dataclass(frozen=True, eq=False)
class Information:
    """The observed information at an estimate, whether or not it determines all of it.

    Args:
        names: (P,), free entries, those on a bound among them.
        coordinates: how the free vector and the parameters belong together.
        estimate: (P,), on the scale of the coordinates.
        matrix: (P, P), with the curvature of priors.
        num_rows: rows of the data.
    """

    names: tuple[str, ...]
    coordinates: Coordinates
    estimate: Tensor
    matrix: Tensor
    num_rows: int

    def covariance(self) -> tuple[Tensor, Tensor]:
        """Return a generalised inverse of the information, (P, P), and flat directions, (P, F).

        Along these the data say nothing.

        What the distribution of the data determines (means of answers, fit statistics) does not
        move along flat directions, and has the spread that this covariance gives it. What does move
        along them has none.

        Raises:
            ValueError: where the log-likelihood curves up, so that the estimate is no maximum.
        """
        return generalised_inverse(self.matrix, self.names)


@torch.enable_grad()
def observed_information(fit: FitRecord, data: Any) -> Information:
    """The observed information of all free entries, also where it is singular.

    Args:
        fit: a converged point estimate.
        data: the data of the fit.

    Raises:
        ValueError: as :func:`standard_errors`, but for entries on a bound and for what the data do
            not determine.
    """
    data = rows_of_fit(fit, data)
    coordinates = _coordinates(fit, data)
    num_rows, _, hessian = _summed(fit, data, coordinates, "hessian")
    if hessian is None:
        raise ValueError("observed_information: data without rows")
    return Information(
        coordinates.names,
        coordinates,
        coordinates.vector(),
        hessian + _curvature_of_prior(fit, data, coordinates),
        num_rows,
    )


def _coordinates(fit: FitRecord, data: Any) -> Coordinates:
    why = None if fit.draws is not None else fit.structure.why_no_standard_errors(fit.params)
    if why is not None:
        raise ValueError(f"standard_errors: {why}")
    return coordinates_of(fit, data)


def _summed(
    fit: FitRecord, data: Any, coordinates: Coordinates, asked: str
) -> tuple[int, Tensor | None, Tensor | None]:
    """Return rows, squared scores and minus the Hessian, as far as they are asked for."""
    kinds = ("scores", "hessian") if asked == "sandwich" else (asked,)
    parts = {
        kind: remembered(
            fit,
            data,
            coordinates,
            kind,
            functools.partial(_summed_anew, fit, data, coordinates, kind),
        )
        for kind in kinds
    }
    return (
        parts[kinds[0]][0],
        parts["scores"][1] if "scores" in parts else None,
        parts["hessian"][2] if "hessian" in parts else None,
    )


def _summed_anew(
    fit: FitRecord, data: Any, coordinates: Coordinates, asked: str
) -> tuple[int, Tensor | None, Tensor | None]:
    free = coordinates.vector()
    num_rows, scores, hessian = 0, None, None
    often = None if fit.row_weights is None else fit.row_weights.to(free)
    for program in programs_of(fit, data):
        own = None if often is None else often[num_rows:]
        rows, own_scores, own_hessian = derivatives(program, coordinates, free, asked, own)
        num_rows += rows
        if own_scores is not None:
            gram = (own_scores if own is None else own_scores * own[:rows, None]).mT @ own_scores
            scores = gram if scores is None else scores + gram
        if own_hessian is not None:
            hessian = own_hessian if hessian is None else hessian + own_hessian
    return num_rows, scores, hessian


def _curvature_of_prior(fit: FitRecord, data: Any, coordinates: Coordinates) -> Tensor:
    """Return minus the second derivatives of the log-prior at the estimate, (P, P).

    The prior is a density of the parameters in their own units.
    """

    def ask() -> Tensor:
        program = next(programs_of(fit, data))
        return minus_hessian(
            lambda free: program.log_prior(coordinates.params(free)), coordinates.vector()
        )

    return remembered(fit, data, coordinates, "prior", ask)


@torch.enable_grad()
def check_information(
    fit: FitRecord, like: Any = None, num_rows: int | None = None, seed: Seed = 0
) -> InformationReport:
    """Check local identification: rank and conditioning of the Fisher information.

    Scores of rows simulated from the fit, so the answer is about the model and not about these
    data.

    Args:
        fit: of any model whose rows can be simulated.
        like: the data of the fit, needed where the model does not describe which site is observed,
            and where rows have covariates, at which those drawn stand.
        num_rows: rows drawn, at least ten a parameter and 2,000 if None.
        seed: of the draw.

    Raises:
        ValueError: if the program cannot draw rows, or its data is no single table.
    """
    seed = as_seed("check_information", seed)
    if num_rows is not None:
        check_size("check_information", "num_rows", num_rows)
    rows = num_rows or max(2000, 10 * sum(value.numel() for value in fit.params.values()))
    scores, names = row_scores(fit, simulated_data(fit, rows, seed, like))
    return replace(information_from_scores(scores, names), is_simulated=True)
