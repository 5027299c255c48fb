r"""Comparison of fits of different families and engines to the same data.

The ranking is by expected log predictive density of unseen rows (:mod:`inference.loo`): from draws
where a fit has them, by folds where it is a point estimate. Differences are taken row by row, so
that their standard errors know that the rows are the same. Weights are those of stacking: they
maximise :math:`\sum_i \log \sum_k w_k \, p_k(x_i \mid x_{-i})`.

A rank says which model predicts better, not whether any is right. Where a family describes its
components, the largest discrepancy of their noise from the assumed distribution (ACDC,
:mod:`inference.acdc.criterion`) stands beside it.

Source: Y. Yao, A. Vehtari, D. Simpson and A. Gelman (2018), doi:10.1214/17-BA1091.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from inference.acdc.criterion import acdc
from inference.base.diagnostics import pareto_k
from inference.base.drawing import ask, draw
from inference.base.structure import num_density_items
from inference.bootstrap import without_replicates
from inference.engines.importance import GOOD_K
from inference.fitting.columns import count_rows
from inference.fitting.result import Fit
from inference.identifiability.of_fit import identifiability_of
from inference.loo import Prediction, cross_validate, loo
from inference.programs.global_state import quiet
from ppl_models.data.tables import checks_data
from ppl_models.parts.repr import listed, told, told_html
from ppl_models.parts.surface import promised as _promised
from ppl_models.parts.validation import Seed, as_seed

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison", "compare"]
__dir__ = _promised(__name__)

ERRORS = 2.0  # standard errors, beyond which a difference is more than chance
# nats, below which its standard error is not to be trusted (Sivula, Magnusson, Matamoros and
# Vehtari 2020, arXiv:2008.10296)
LEAST_GAP = 4.0
SHOWN = [
    "elpd",
    "elpd_diff",
    "diff_se",
    "weight",
    "log_likelihood",
    "bic",
    "converged",
]  # at a prompt
# of stacking weights: nats a row that others could gain, and the share of a step taken to where one
# of them would be zero
STACKED, INSIDE, MOST_STEPS = 1e-12, 0.99, 100
SAME = 1e-6  # relative difference up to which a log-likelihood counts as the stored one


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Fits side by side, best prediction first.

    Args:
        names: of the fits, in the order of the table.
        records: one dict a fit, what the table shows.
        predictions: by name; None where the likelihood is conditional on activities of the rows.
        warnings: where two numbers of the table are not comparable, and why.
    """

    names: tuple[str, ...]
    records: tuple[dict[str, Any], ...]
    predictions: dict[str, Prediction | None]
    warnings: tuple[str, ...]

    @property
    def table(self) -> pd.DataFrame:
        """One line a fit: prediction, likelihood, parameters, convergence and misfit.

        ``likelihood`` says of which kind the log-likelihoods and BIC are (marginal, of data and
        labels, conditional on activities of the rows, or a lower bound); ``elpd`` of unseen rows
        with its standard error, the difference to the best with its own, the weight in a stack, how
        it was found, rows it cannot be trusted for, effective and free parameters, log-likelihood
        and BIC at the estimate, log-likelihood of a test set, the identifiability verdict,
        convergence, seconds; ``discrepancy`` is the largest divergence (nats) of a component's
        noise from its distribution beyond what exact noise gives, ``misfitting`` the number of
        components more than three standard deviations off, NaN for families without components.
        """
        import pandas as pd

        return pd.DataFrame(list(self.records), index=pd.Index(self.names, name="fit"))

    @property
    def best(self) -> str:
        """Name of the fit of the best prediction."""
        return self.names[0]

    @property
    def ranked(self) -> list[tuple[str, dict[str, Any]]]:
        """Fits that predict unseen rows, the best first."""
        return [
            (name, record)
            for name, record in zip(self.names, self.records, strict=True)
            if record["how"] != "none"
        ]

    @property
    def close(self) -> list[tuple[str, dict[str, Any]]]:
        """Fits behind the first by no more than chance: two standard errors, or 4 nats."""
        return [
            (name, record)
            for name, record in self.ranked[1:]
            if not record["elpd_diff"] > max(ERRORS * record["diff_se"], LEAST_GAP)
        ]

    @property
    def winner(self) -> str:
        """Best prediction, in one sentence."""
        ranked = self.ranked
        if not ranked:
            return "No fit here predicts rows it has not seen, so there is no winner."
        first = ranked[0][0]
        if len(ranked) == 1:
            return (
                f"{first} is the only fit here that predicts rows it has not seen, so there is no"
                " winner."
            )
        if self.close:
            return (
                f"{first} predicts unseen rows best, but too close to call:"
                f" {'; '.join(_behind(*member) for member in self.close)}."
            )
        return f"{first} predicts unseen rows best, by more than chance: {_behind(*ranked[1])}."

    def __repr__(self) -> str:
        return told(
            f"Comparison of {len(self.names)} fits",
            [self.winner, *self.warnings],
            self.table[SHOWN],
        )

    def _repr_html_(self) -> str:
        return told_html(
            f"Comparison of {len(self.names)} fits", [self.winner, *self.warnings], self.table
        )

    def plot(self, ax: Any = None) -> Any:
        """Draw differences of predictive density to the best, and the other columns."""
        return draw("plot_comparison", self, ax)

    def report(self, path: str | Path) -> Path:
        """Write one HTML page; see :func:`inference.report.write_comparison_report`.

        The file is replaced if it exists.
        """
        page: Path = ask("report", "write_comparison_report", self, path)
        return page


def _behind(name: str, record: dict[str, Any]) -> str:
    return (
        f"{name} is {record['elpd_diff']:,.1f} nats behind, with a standard error of"
        f" {record['diff_se']:,.1f}"
    )


def compare(
    fits: Mapping[str, Fit],
    data: Any = None,
    test: Any = None,
    num_folds: int | None = None,
    refit: bool = False,
    seed: Seed = 0,
) -> Comparison:
    """Compare fits to the same data.

    Args:
        fits: by name, at least two.
        data: the data all of them were fitted to.
        test: rows of the same columns that no fit has seen, for their log-likelihood.
        num_folds: folds for point estimates, which have no draws, and for approximations that miss
            parts of the posterior; None for ten, or one a row where there are fewer; 0 for neither.
        refit: fit again without each row whose importance weights cannot be trusted.
        seed: of the folds, the same for all fits.

    Raises:
        ValueError: for fewer than two fits, fits of other data than ``data`` or of different
            columns, or too few draws.

    Warns:
        UserWarning: for each pair of kinds of numbers that are not comparable.

    Example:
        >>> import numpy as np
        >>> from inference import compare, fit
        >>> from ppl_models import Mixture
        >>> rng = np.random.default_rng(0)
        >>> answers = (rng.random((200, 4)) < rng.choice([0.2, 0.2, 0.9], (200, 1))).astype(int)
        >>> fits = {f"{k} classes": fit(Mixture(k), answers) for k in (1, 2)}
        >>> compare(fits, answers, num_folds=3).table.index[0]
        '2 classes'
    """
    seed = as_seed("compare", seed)
    if (
        not isinstance(fits, Mapping)
        or len(fits) < 2
        or not all(isinstance(member, Fit) for member in fits.values())
    ):
        size = f" of {len(fits)}" if hasattr(fits, "__len__") else ""
        raise ValueError(
            "compare: a dict of at least two fits by name was expected, got"
            f" {type(fits).__name__}{size}"
        )
    if data is None:
        raise ValueError(
            "compare: the data of the fits were expected, got None; a fit holds no rows:"
            " compare(fits, data), or compare(fits, ()) of programs that take none"
        )
    fits = {name: without_replicates(member) for name, member in fits.items()}
    _check_same_kind(fits)
    _check_same_columns(fits)
    for name, member in fits.items():
        member.refuse_weights("compare")
        _check_same_data(name, member, data)
    predictions = {
        name: _predict(member, data, num_folds, refit, seed) for name, member in fits.items()
    }
    notes = _notes(fits, predictions)
    for note in notes:
        warnings.warn(note, UserWarning, stacklevel=2)
    elpds = {
        name: -math.inf if member is None else member.elpd for name, member in predictions.items()
    }
    order = sorted(fits, key=lambda name: -elpds[name])
    best = predictions[order[0]]
    weights = _stacking(
        {name: member.rows for name, member in predictions.items() if member is not None}
    )
    records = []
    for name in order:
        member, prediction = fits[name], predictions[name]
        record: dict[str, Any] = {
            "family": member.model_name,
            "engine": type(member.method).__name__,
            "elpd": math.nan, "se": math.nan, "elpd_diff": math.nan, "diff_se": math.nan,
            "weight": weights.get(name, math.nan), "how": "none", "bad_rows": math.nan,
            "p_eff": math.nan,
        }  # fmt: skip
        if prediction is not None and best is not None:
            gap = best.rows - prediction.rows
            record |= {
                "elpd": prediction.elpd,
                "se": prediction.standard_error,
                "elpd_diff": float(gap.sum()),
                "diff_se": float(np.sqrt(len(gap) * gap.var(ddof=1))),
                "how": prediction.how,
                "bad_rows": math.nan if np.isnan(prediction.k_hat).all() else prediction.num_bad,
                "p_eff": prediction.effective_parameters,
            }
        record |= {
            "num_parameters": member.num_parameters,
            "likelihood": _kind(member),
            "log_likelihood": member.log_likelihood,
            "bic": member.bic if member.why_no_criteria is None else math.nan,
            "test_log_likelihood": math.nan if test is None else _test_density(member, test),
            "discrepancy": math.nan,
            "misfitting": math.nan,
            "identifiability": _verdict(member, data),
            "converged": member.converged,
            "seconds": member.seconds,
        }
        records.append(record | _discrepancy(member, data, seed))
    return Comparison(
        tuple(order), tuple(records), {name: predictions[name] for name in order}, tuple(notes)
    )


# ---------------------------------------------------------------- parts


def _check_same_kind(fits: Mapping[str, Fit]) -> None:
    """A likelihood relative to something is compared with its own kind alone."""
    relative = {name: member.structure.relative_to for name, member in fits.items()}
    if len(set(relative.values())) > 1:
        ratios = [
            f"{name!r} (relative to {what})" for name, what in relative.items() if what is not None
        ]
        raise ValueError(
            f"compare: the likelihoods of {', '.join(ratios)} are ratios, and those of"
            f" {[name for name, what in relative.items() if what is None]} are densities or"
            " probabilities of the data: no table can hold both. Compare such a fit with other"
            " fits of its kind to the same rows and variates; beside others, compare what they say"
            " of the rows (posterior_latents, simulated rows)"
        )


def _check_same_columns(fits: Mapping[str, Fit]) -> None:
    """Refuse fits whose likelihoods are of different columns, given ones such as covariates aside.

    Columns of arrays have no names, and are counted.
    """
    drawn = {
        name: member.item_names[: len(member.item_names) - member.structure.num_given]
        for name, member in fits.items()
        if checks_data(member.model) and member.item_names
    }
    for name, other in itertools.combinations(drawn, 2):
        own, others = drawn[name], drawn[other]
        is_numbered = any(names[0] == "0" for names in (own, others))
        if len(own) != len(others) if is_numbered else set(own) != set(others):
            raise ValueError(
                f"compare: fits of the same columns were expected, got fit {name!r} of"
                f" {listed(map(repr, own), 6)} and fit {other!r} of {listed(map(repr, others), 6)}:"
                " likelihoods of different columns cannot be held against each other"
            )


def _check_same_data(name: str, member: Fit, data: Any) -> None:
    """Refuse data that do not reproduce a fit's rows, columns and log-likelihood."""
    num_rows = count_rows(member, data)
    if num_rows != member.num_rows:
        raise ValueError(
            f"compare: fit {name!r} was made on {member.num_rows} rows, but data has {num_rows}:"
            " all fits must be of the same data"
        )
    if member.labels:  # its log-likelihood is that of data and labels
        return
    rows = member.log_likelihood_rows(data)
    total = float(rows.double().sum())
    stored = member.log_likelihood
    # where latents are too many to sum over, the stored value is itself an estimate
    if (
        math.isfinite(stored)
        and member.elbo is None
        and abs(total - stored) > SAME * max(1.0, abs(stored))
    ):
        raise ValueError(
            f"compare: at the estimate of fit {name!r} these data have log-likelihood {total:.6g},"
            f" but its own had {stored:.6g}: all fits must be of the same data"
        )


def _predict(
    member: Fit, data: Any, num_folds: int | None, refit: bool, seed: int
) -> Prediction | None:
    if member.local:
        return None
    ratio = (member.sample_stats or {}).get("log_importance")
    trusted = ratio is None or pareto_k(ratio.reshape(-1)) <= GOOD_K
    if member.draws is not None and not member.labels and (trusted or num_folds == 0):
        return loo(member, data, refit=refit)
    return None if num_folds == 0 else cross_validate(member, data, num_folds, seed)


def _notes(fits: Mapping[str, Fit], predictions: Mapping[str, Prediction | None]) -> list[str]:
    notes = []
    continuous = {
        name: num_density_items(one.structure, len(one.item_names)) for name, one in fits.items()
    }
    if len(set(continuous.values())) > 1:
        notes.append(
            "log densities and log probabilities are not comparable; items that have a density:"
            f" {continuous}"
        )
    hows = {name: member.how for name, member in predictions.items() if member is not None}
    if len(set(hows.values())) > 1:
        notes.append(f"predictions were found in different ways, whose errors differ: {hows}")
    local = [name for name, member in fits.items() if member.local]
    if local:
        notes.append(
            f"the log-likelihood of {local} is conditional on fitted activities of the rows, so"
            " that there is no BIC and no prediction here"
        )
    bounds = [name for name, member in fits.items() if _kind(member) == "bound"]
    if bounds:
        notes.append(f"log-likelihoods of {bounds} are lower bounds")
    labelled = [name for name, member in fits.items() if member.labels]
    if labelled:
        notes.append(
            f"log-likelihood and BIC of {labelled} are of data and labels, log p(x, labels), and"
            " those of no other fit, or of one with other labels, can be held against them;"
            " predictions are of the data alone, by refits that know the labels of other rows"
        )
    errors = {
        name: f"{member.log_likelihood_error:.2g}"
        for name, member in fits.items()
        if member.log_likelihood_error is not None
    }
    if errors:
        notes.append(f"log-likelihoods are estimated by sampling, with standard errors {errors}")
    priors = [name for name, member in fits.items() if member.draws is not None]
    if priors and len(priors) < len(fits):
        notes.append(f"{priors} average over a posterior, the others plug in an estimate")
    return notes


def _stacking(rows: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return simplex weights of the best mixture of predictions, by primal-dual Newton steps.

    The mean log-likelihood of the mixture is within ``STACKED`` of the largest there is.
    """
    if not rows:
        return {}
    table = np.stack(list(rows.values()), 1)
    table = table[table.max(1) != -math.inf]  # no weights predict the others
    density = np.exp(table - table.max(1, keepdims=True))
    weights = np.full(len(rows), 1 / len(rows))
    slack = np.ones(len(rows))
    for _ in range(MOST_STEPS if len(table) else 0):
        ratio = density / (density @ weights)[:, None]
        slope = ratio.mean(0)
        if slope.max() * weights.sum() - 1 <= STACKED:  # bounds what is left to gain
            break
        curvature = ratio.T @ ratio / len(ratio) + np.diag(slack / weights)
        goal = 0.1 * (weights @ slack) / len(weights)
        step = np.linalg.solve(curvature, slope - 1 + goal / weights)
        slack_step = (goal - slack * step) / weights - slack
        weights = weights + step * INSIDE / max(INSIDE, float((-step / weights).max()))
        slack = slack + slack_step * INSIDE / max(INSIDE, float((-slack_step / slack).max()))
    return dict(zip(rows, map(float, weights / weights.sum()), strict=True))


def _test_density(member: Fit, test: Any) -> float:
    if member.draws is None:
        return float(member.log_likelihood_rows(test).double().sum())
    from inference.fitting.draws import log_likelihood_of_draws

    values = log_likelihood_of_draws(
        member, {n: v.reshape(-1, *v.shape[2:]) for n, v in member.draws.items()}, test
    )
    return float((torch.logsumexp(values, 0) - math.log(len(values))).sum())


def _kind(member: Fit) -> str:
    return (
        "conditional"
        if member.local
        else "bound"
        if math.isnan(member.log_likelihood) and member.elbo is not None
        else "of data and labels"
        if member.labels
        else "marginal"
    )


def _discrepancy(member: Fit, data: Any, seed: int) -> dict[str, float]:
    """Return ACDC's figures for the components of one fit; none where a family has none."""
    number = getattr(member.model, "num_components", None)
    if number is None:
        return {}
    try:
        with quiet():
            line = acdc({number: member}, data, seed=seed).table.loc[number]
    except (
        ValueError
    ):  # the noise of these components, or of these data, has no distribution to be held against
        return {}
    return {
        "discrepancy": float(line["largest_discrepancy"]),
        "misfitting": float(line["misfitting"]),
    }


def _verdict(member: Fit, data: Any) -> str:
    """Verdict of a theorem, or of the rank of the information near the estimate."""
    try:
        report: Any = identifiability_of(member, data)
    except ValueError as error:
        return f"not decided ({error})"
    return str(getattr(report, "verdict", "not decided"))
