r"""Rows classified by their attributes, and how far to trust that.

With :math:`\varphi_{i\alpha}(\theta) = P(\alpha \mid x_i; \theta)` and :math:`m_{ik} = P(\alpha_k =
1 \mid x_i)`, the expected shares of rows classified correctly by the most probable profile
:math:`\hat\alpha_i`, and attribute by attribute, are

.. math:: \hat\tau = \frac1N \sum_i \max_\alpha \varphi_{i\alpha}, \qquad
    \hat\tau_k = \frac1N \sum_i \max(m_{ik}, 1 - m_{ik}),

and the expected agreement of two independent draws from a row's posterior

.. math:: \hat\gamma = \frac1N \sum_i \sum_\alpha \varphi_{i\alpha}^2, \qquad
    \hat\gamma_k = \frac1N \sum_i \{ m_{ik}^2 + (1 - m_{ik})^2 \}.

At the true parameters :math:`\theta_0` they are right. At an estimate the shares are too high. What
the classification really reaches is :math:`\tau = N^{-1} \sum_i \varphi_{i
\hat\alpha_i}(\theta_0)`, and with :math:`\delta = \hat\theta - \theta_0`

.. math::

    \hat\tau - \tau = \frac1N \sum_i \Bigl\{ \varphi_{i \hat\alpha_i}'(\hat\theta)^\top \delta -
    \tfrac12 \delta^\top \varphi_{i \hat\alpha_i}''(\hat\theta) \delta \Bigr\} + O_P(N^{-3/2}),

whose mean is of the order of parameters over rows, and positive: row i has moved :math:`\hat\theta`
towards what makes its own answers likely (:math:`\delta` holds :math:`I^{-1} s_i`),
:math:`\hat\alpha_i` was chosen as the largest under the same error, and estimated effects are on
average too large. That mean is a smooth function of :math:`\theta_0`, so that its value at
:math:`\hat\theta` is right to the same order, and there it can be seen: for data sets :math:`x^b`
simulated from :math:`\hat\theta`, with estimates :math:`\hat\theta^b`,

.. math::

    o = \frac1B \sum_b \frac1N \sum_i \Bigl\{ \max_\alpha \varphi_\alpha(x_i^b; \hat\theta^b) -
    \varphi_{\hat\alpha_i^b}(x_i^b; \hat\theta) \Bigr\},
    \qquad \hat\tau - o,

and likewise each entry of the tables of true against classified attributes. The posterior at
:math:`\hat\theta` takes the place of the profiles that were simulated, whose mean it is, so that
few data sets do. (Averaging :math:`\varphi` over the normal distribution of the estimate needs no
data sets, but mends the second term alone.) ``benchmarks/attributes.py`` measures what is left.

Of classes (components of a mixture, states, options) the same is done by :func:`class_accuracy`,
but for where data are simulated. Few rows make classes of chance that lie far apart, and data
simulated from these have real ones: on independent noise the first order takes 4 of 96 per cent
off, where half of the rows are right. So parameters :math:`\theta(s)` are sought whose classes lie
s times as far apart as in the fit, and alike at s = 0
(:func:`inference.base.structure.drawn_together`), such that fits to data simulated there
gain as much as the fit itself over classes that are all alike,

.. math::

    \frac1B \sum_b \{ \ell(\hat\theta^b; x^b) - \ell(\theta^b(0); x^b) \} = \ell(\hat\theta; x) -
    \ell(\theta(0); x),

and :math:`\tau` is the mean, there, of the true share that the classes of :math:`\hat\theta^b`
reach under the best names for them. The gain grows with the distance of the classes, as the
posterior's certainty does not, and a fit that gains no more than chance is judged at s = 0
(indirect inference; C. Gourieroux, A. Monfort and E. Renault 1993, doi:10.1002/jae.3950080507).
``benchmarks/class_accuracy.py`` measures what is left.

Source: W. Wang, L. Song, P. Chen, Y. Meng and S. Ding (2015), doi:10.1111/jedm.12096; Y. Cui, M. J.
Gierl and H.-H. Chang (2012), doi:10.1111/j.1745-3984.2011.00158.x; B. Efron (1983),
doi:10.1080/01621459.1983.10477973 (the optimism of an error rate, by the bootstrap).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from inference.base.progress import NoProgress
from inference.base.structure import (
    Problem,
    drawn_together,
    latent_posteriors,
    marginal_rows,
)
from inference.bootstrap import replicates, simulated_table
from inference.engines.em import EM, fit_sets, fits_sets
from inference.fitting.columns import checked_as_fitted, labels_of
from inference.fitting.posterior import chunks, posterior_latents, sums_out
from inference.fitting.problem import problem_of
from inference.fitting.record import FitRecord
from inference.inspection.attributes import attribute_model
from inference.programs.global_state import quiet
from inference.programs.program import Params
from ppl_models.data.tables import first_tensor
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.validation import Seed, as_seed, check_size

LEAST_ACCURACY = 0.8  # below it an attribute is flagged
REPLICATES = 10
MOST_CELLS = 2**22  # rows times profiles times items, up to which data sets are simulated unasked
REFIT = EM(tolerance=1e-5, max_iterations=500)
# data sets at each distance of the classes, where EM takes all as one batch and where it does not
CLASS_REPLICATES = (8, 4)
CLASS_REFIT = EM(tolerance=1e-4, max_iterations=300)
# of a refit beside the truth: spread out, and at random; those of a plain call are more
STARTS = (3, 2)
MOST_DISTANCES = 4
# steps times classes times items, up to which data sets are simulated unasked, as a batch and one
# by one
MOST_SIZES = (2**14, 2**11)
# rows a parameter, nats a parameter: together they leave less than half a per cent to take off
ENOUGH_ROWS, ENOUGH_GAIN = 100, 5


@shows_briefly
@dataclass(frozen=True, eq=False)
class Classification:
    """Classification of rows by their attributes.

    Args:
        attributes: K names.
        profiles: the most probable profile of each row, (N, K) of 0 and 1.
        profile_probability: of that profile, (N,).
        probabilities: P(attribute = 1 | row), (N, K).
        accuracy: expected share of rows whose most probable profile is the true one.
        consistency: expected agreement of two draws of a row's profile from its posterior.
        attribute_accuracy, attribute_consistency: the same attribute by attribute, with each
            classified by itself, (K,).
        confusion: expected shares of rows, (K, 2, 2): attribute k truly 0 or 1 (rows) and
            classified 0 or 1 (columns).
        overstated: what was taken off the mean of ``profile_probability`` for ``accuracy``, because
            parameters were estimated from the same rows.
        attribute_overstated: likewise of each attribute, (K,).
        note: why nothing was taken off; "" where it was.
    """

    attributes: tuple[str, ...]
    profiles: np.ndarray
    profile_probability: np.ndarray
    probabilities: np.ndarray
    accuracy: float
    consistency: float
    attribute_accuracy: np.ndarray
    attribute_consistency: np.ndarray
    confusion: np.ndarray
    overstated: float
    attribute_overstated: np.ndarray
    note: str

    @property
    def doubtful(self) -> tuple[str, ...]:
        """Attributes with an expected accuracy below 0.8."""
        return tuple(
            name
            for name, share in zip(self.attributes, self.attribute_accuracy, strict=True)
            if share < LEAST_ACCURACY
        )


def classify_rows(
    fit: FitRecord, data: Any, num_replicates: int | None = None, seed: Seed = 0
) -> Classification:
    """Classify rows by attributes and profiles, with expected accuracy and consistency.

    Args:
        fit: of a :class:`~ppl_models.LatentAttributeModel`.
        data: (N, J), NaN where missing: the rows of the fit, or others.
        num_replicates: data sets that are simulated and fitted to see by how much the posterior
            overstates its accuracy; 0 for none. Ten if None, where that takes seconds: for the rows
            of the fit, up to four million rows times profiles times items. Accuracies of other rows
            are what the posterior says, :attr:`Classification.note` tells.
        seed: of the first data set.

    Raises:
        ValueError: for another model, data that do not fit it, or more profiles than can be listed;
            where data sets are asked for, for other rows than those of the fit, or posterior draws.
    """
    seed = as_seed("classify_rows", seed)
    layer = attribute_model(fit, "classify_rows").layers[0]
    if num_replicates is not None:
        check_size("classify_rows", "num_replicates", num_replicates, least=0)
    posterior, values = _posterior(fit, data)
    top, place = posterior.max(-1)
    chance = (posterior @ values).clamp(0, 1)
    often = _often(fit, len(posterior)).unsqueeze(-1)
    own = _shares(posterior, posterior, values, often)
    wanted, note = _replicates(fit, len(posterior), len(values) * layer.num_items, num_replicates)
    off = _overstated(fit, data, wanted, seed) if wanted else torch.zeros_like(own)
    mended = (own - off).clamp(0, 1)
    return Classification(
        tuple(str(name) for name in labels_of(fit, "attribute", layer.num_parents)),
        values[place].cpu().numpy(),
        top.cpu().numpy(),
        chance.cpu().numpy(),
        float(mended[0]),
        float((often * posterior.square()).sum(-1).mean()),
        _traces(mended).cpu().numpy(),
        (often * (chance.square() + (1 - chance).square())).mean(0).cpu().numpy(),
        mended[1:].reshape(-1, 2, 2).cpu().numpy(),
        float(own[0] - mended[0]),
        (_traces(own) - _traces(mended)).cpu().numpy(),
        note,
    )


@shows_briefly
@dataclass(frozen=True, eq=False)
class ClassAccuracy:
    """Accuracy of the classes that rows (steps of sequences) are put into.

    Args:
        accuracy: expected share of rows whose most probable class is the true one.
        said: the same as the posterior has it, which takes the estimates for the truth.
        error: standard error of ``accuracy`` from the number of data sets; 0 where nothing was
            simulated.
        by_class: expected share of the rows put into each class that belong there, (K,); NaN where
            no row is.
        guess: expected share that is right where all rows are put into the largest class, in the
            data that ``accuracy`` was worked out from; ``largest``: the estimated share of that
            class. They differ where classes were taken to lie nearer than in the fit, since shares
            are then more even, and by the chance of simulated rows.
        entropy_r2: 1 - entropy of the true posterior over that of even chances; ``said_r2``: as the
            posterior has it.
        apart: how far apart the classes are taken to be, 1 as far as in the fit.
        note: why nothing was taken off; "" where it was.
        is_enough: whether that is because next to nothing is left to take off.
        num: rows or steps that are classified.
    """

    accuracy: float
    said: float
    error: float
    by_class: np.ndarray
    guess: float
    entropy_r2: float
    said_r2: float
    apart: float
    note: str
    is_enough: bool = False
    largest: float = math.nan
    num: int = 0

    @property
    def error_of_rows(self) -> float:
        """Standard error of the share that is right of the rows themselves.

        That of ``accuracy`` and the binomial one of as many rows.
        """
        chance = self.accuracy * (1 - self.accuracy) / max(1, self.num)
        return math.sqrt(self.error**2 + (chance if self.num else 0.0))

    @property
    def overstated(self) -> float:
        """Optimism that the correction subtracts."""
        return self.said - self.accuracy

    @property
    def worthless(self) -> bool:
        """Classes hardly better than the largest one alone, or than the correction."""
        return not self.note and self.accuracy - self.guess <= max(2 * self.error, self.overstated)


def class_accuracy(
    fit: FitRecord, data: Any, num_replicates: int | None = None, seed: Seed = 0
) -> ClassAccuracy:
    """Expected share of rows whose class is right, for one latent with several values.

    Args:
        fit: of a mixture, a hidden Markov model or options.
        data: the rows of the fit, or others, of which the posterior alone is told.
        num_replicates: data sets simulated and fitted at each of one to four distances of the
            classes; 0 for none. Eight, or four where they cannot be fitted as one batch, if None,
            where that takes seconds, and unless there are a hundred rows and more for each
            parameter and classes that gain five nats for each: what is left to take off is then
            below half a per cent. :attr:`ClassAccuracy.note` tells.
        seed: of the first data set.

    Raises:
        ValueError: for a model without such a latent; where data sets are asked for, for rows,
            engines or models that have none.
    """
    seed = as_seed("class_accuracy", seed)
    owner = "class_accuracy"
    if num_replicates is not None:
        check_size(owner, "num_replicates", num_replicates, least=0)
    posterior = posterior_latents(fit, data)
    chances, often = _lines(posterior, owner, fit.model_name, fit)
    own = _judged(chances, chances, often)
    refused = _refused(fit, data)
    if refused and num_replicates:
        raise ValueError(
            f"{owner}: num_replicates={num_replicates} needs a point estimate of classes, and the"
            f" rows of its fit: {refused}; num_replicates=0 was expected"
        )
    if refused or num_replicates == 0:
        return _accuracy(own, own, note=refused or "num_replicates is 0")
    with quiet():
        problem = problem_of(fit.model, checked_as_fitted(fit, data)[0], seed)
        gain, params = _gain(problem, fit.params), fit.num_parameters
        is_batch = fits_sets(problem, CLASS_REFIT)
        usual = CLASS_REPLICATES[0 if is_batch else 1]
        if num_replicates is None:
            size = chances.numel() * problem.data.shape[-1]
            if len(chances) >= ENOUGH_ROWS * params and gain >= ENOUGH_GAIN * params:
                unit = "row" if chances.shape[0] == fit.num_rows else "step"
                note = f"{len(chances) // params:,} {unit}s for each parameter determine them well"
                return _accuracy(own, own, note=note, is_enough=True)
            if size > MOST_SIZES[0 if is_batch else 1]:
                note = (
                    "it would take a while; inference.inspection.class_accuracy(fit, data,"
                    f" num_replicates={usual}) works it out"
                )
                return _accuracy(own, own, note=note)
        mean, error, apart = _at_gain(problem, fit.params, gain, num_replicates or usual, seed)
    # rows that are put into classes less surely than simulated ones have nothing to take off
    guess, mean = mean[1], np.where(np.isnan(own), np.nan, np.fmin(mean, own))
    mean[1] = guess
    return _accuracy(mean, own, error, apart, num=len(chances))


def _accuracy(
    judged: np.ndarray,
    said: np.ndarray,
    error: float = 0.0,
    apart: float = 1.0,
    note: str = "",
    is_enough: bool = False,
    num: int = 0,
) -> ClassAccuracy:
    accuracy, guess, entropy = (float(value) for value in judged[:3])
    right, said_r2 = float(said[0]), float(said[2])
    values = (accuracy, right, error, judged[3:], guess, entropy, said_r2, apart, note, is_enough)
    return ClassAccuracy(*values, largest=float(said[1]), num=num)


def _other_rows(fit: FitRecord, num_rows: int) -> str:
    """Message on rows that are not those of the fit; "" where they are as many."""
    if num_rows == fit.num_rows:
        return ""
    return f"these are {num_rows:,} rows, and the fit is of {fit.num_rows:,}"


def _refused(fit: FitRecord, data: Any) -> str:
    """Why no data sets are simulated; "" where they may be."""
    if drawn_together.dispatch(type(fit.structure)) is drawn_together.dispatch(object):
        return f"rows of {fit.model_name} with known classes cannot be simulated"
    num_rows = len(first_tensor(checked_as_fitted(fit, data)[0]))
    return _no_data_sets(fit) or _other_rows(fit, num_rows)


def _no_data_sets(fit: FitRecord) -> str:
    """Why a fit has no data sets like its own; "" where it has."""
    if fit.draws is not None:
        return "the fit has posterior draws"
    if fit.row_weights is not None:
        return "its rows are weighted"
    if fit.labels:
        return "rows of simulated data sets have no labels"
    return "some of its parameters are known" if fit.fixed or fit.tied else ""


def _often(fit: FitRecord, num_rows: int) -> Tensor:
    """Weights of the rows over their mean, (N,); ones where the rows are others than the fit's."""
    if fit.row_weights is None or num_rows != fit.num_rows:
        return torch.ones(num_rows, dtype=torch.float64)
    weights = fit.row_weights.detach().cpu().double()
    return weights / weights.mean()


def _lines(
    posterior: Params, owner: str, name: str, fit: FitRecord | None = None
) -> tuple[Tensor, Tensor]:
    """P(class | data) of every row or step, (n, K), and how often each counts, (n,)."""
    values = list(posterior.values())
    lines, often = torch.zeros(0, 1), torch.ones(())
    if len(values) == 1 and values[0].dim() > 1:
        chances = values[0].detach().cpu().double()
        if fit is not None:
            often = _often(fit, len(chances)).reshape(-1, *[1] * (chances.dim() - 2))
        lines, often = chances.flatten(0, -2), often.expand(chances.shape[:-1]).flatten()
        kept = lines.sum(-1) > 0  # steps after the end of a sequence have none
        lines, often = lines[kept], often[kept]
    if (
        lines.shape[-1] < 2
        or not len(lines)
        or not torch.allclose(lines.sum(-1), torch.ones(len(lines), dtype=lines.dtype), atol=1e-4)
    ):
        raise ValueError(
            f"{owner}: a model with one latent of several values a row was expected, got {name}"
        )
    return lines, often


def _judged(said: Tensor, true: Tensor, often: Tensor) -> np.ndarray:
    """Accuracy, share of the largest class, entropy R2, and accuracy by class, (3 + K,).

    Args:
        said: by which rows are put into classes, (n, K).
        true: by which they are judged.
        often: how often each counts, (n,).
    """
    size, total = true.shape[1], float(often.sum())
    counted = often.unsqueeze(-1) * true
    table = (
        torch.zeros(size, size, dtype=true.dtype).index_add_(0, said.argmax(-1), counted).numpy()
        / total
    )  # said, true
    rows, columns = linear_sum_assignment(-table)  # the best names
    right = np.full(size, np.nan)
    held = table.sum(1)
    right[columns] = np.divide(
        table[rows, columns], held, out=np.full(size, np.nan), where=held > 0
    )
    entropy = -float(torch.special.xlogy(counted, true).sum()) / total
    return np.array(
        [table[rows, columns].sum(), table.sum(0).max(), 1 - entropy / math.log(size), *right]
    )


def _log_likelihood(problem: Problem, params: Params) -> float:
    with torch.no_grad():
        return float(marginal_rows(problem.structure, problem.program(), params).sum())


def _gain(problem: Problem, params: Params) -> float:
    """Log-likelihood gain over identical classes, in nats."""
    alike = drawn_together(problem.structure, problem, params, 0.0)
    if alike is None:
        raise RuntimeError("classes that can be drawn together were expected")
    return _log_likelihood(problem, params) - _log_likelihood(problem, alike)


@dataclass(frozen=True, eq=False)
class _Replicated:
    """Means over refits to data sets of one truth, (3 + K,), and standard errors."""

    gain: float
    gain_error: float
    judged: np.ndarray
    error: float


def _at_gain(
    problem: Problem, params: Params, gain: float, num_sets: int, seed: int
) -> tuple[np.ndarray, float, float]:
    """Means where refits gain as much as the fit, the error of accuracy, and the distance."""
    seen: dict[float, _Replicated] = {}
    apart, last = 1.0, math.nan
    while True:
        first = seed + len(seen) * num_sets
        seen[apart] = found = _replicated(problem, params, apart, num_sets, first)
        if abs(found.gain - gain) <= found.gain_error:
            return found.judged, found.error, apart
        low = max((s for s, own in seen.items() if own.gain <= gain), default=None)
        high = min(
            (s for s, own in seen.items() if own.gain > gain and (low is None or s > low)),
            default=None,
        )
        if high is None:  # refits gain less than the fit did, however far apart its classes are
            return seen[1.0].judged, seen[1.0].error, 1.0
        if low is None and high == 0:
            return seen[0.0].judged, seen[0.0].error, 0.0
        apart = _between(low, high, seen, gain)
        if low is None and apart in seen:  # too near for another one between
            return seen[high].judged, seen[high].error, high
        if low is not None:
            one, two = seen[low], seen[high]
            share = (gain - one.gain) / (two.gain - one.gain)
            between = (1 - share) * one.judged + share * two.judged
            error = (1 - share) * one.error + share * two.error
            is_known = abs(between[0] - last) <= error  # another distance would say the same
            if is_known or len(seen) == MOST_DISTANCES or apart in seen:
                return between, error, (1 - share) * low + share * high
            last = between[0]
        if low is None and len(seen) >= MOST_DISTANCES - 1:
            apart = 0.0


def _between(low: float | None, high: float, seen: dict[float, _Replicated], gain: float) -> float:
    """The next distance to try: gains above what chance gives grow with its square."""
    if low is None:
        by_chance = seen[high].gain - gain  # what the refits gained more than the fit did
        inside = (gain - by_chance) / max(seen[high].gain - by_chance, 1e-12)
        return round(high * math.sqrt(inside), 3) if inside > 0.01 else 0.0
    share = (gain - seen[low].gain) / (seen[high].gain - seen[low].gain)
    return round(math.sqrt(low**2 + share * (high**2 - low**2)), 3)


def _replicated(
    problem: Problem, params: Params, apart: float, num_sets: int, seed: int
) -> _Replicated:
    """Refits to data simulated where classes lie so far apart."""
    structure = problem.structure
    truth = params if apart == 1 else drawn_together(structure, problem, params, apart)
    if truth is None:
        raise RuntimeError("classes that can be drawn together were expected")
    sets = torch.stack([simulated_table(problem, truth, seed + b) for b in range(num_sets)])
    problems = [problem_of(problem.model, rows, seed + b, True) for b, rows in enumerate(sets)]
    gains, found = [], []
    for own, best in zip(problems, _refits(problem, problems, sets, truth), strict=True):
        gains.append(_gain(own, best))
        (said, often), (true, _) = (
            _lines(latent_posteriors(structure, own.program(), at), "class_accuracy", "")
            for at in (best, truth)
        )
        found.append(_judged(said, true, often))
    judged = np.array(found)
    counts = (~np.isnan(judged)).sum(0)  # 0 for a class that no refit puts a row into
    mean = np.divide(
        np.nansum(judged, 0), counts, out=np.full(judged.shape[1], np.nan), where=counts > 0
    )
    spread = max(1, num_sets - 1) ** 0.5
    return _Replicated(
        float(np.mean(gains)),
        float(np.std(gains) / spread),
        mean,
        float(judged[:, 0].std() / spread),
    )


def _refits(
    problem: Problem, problems: Sequence[Problem], sets: Tensor, truth: Params
) -> list[Params]:
    """Best of several starts on each data set, all as one batch where EM has the steps."""
    starts = []
    for own in problems:
        more = [
            own.structure.start(own, kind, number)
            for kind, number in zip(("spectral", "random"), STARTS, strict=True)
        ]
        parts = [
            {name: value.unsqueeze(0) for name, value in truth.items()},
            *(part for part in more if part is not None),
        ]
        starts.append(
            {name: torch.cat([part[name].to(truth[name]) for part in parts]) for name in truth}
        )
    num = 1 + sum(STARTS)
    with torch.enable_grad():
        if fits_sets(problem, CLASS_REFIT):
            joint = {name: torch.cat([start[name] for start in starts]) for name in truth}
            outcome = fit_sets(problem, CLASS_REFIT, sets, joint)
            objective = outcome.objective.nan_to_num(nan=-torch.inf).reshape(-1, num)
            best = objective.argmax(-1) + num * torch.arange(len(problems))
            return [
                {name: value[at] for name, value in outcome.params.items()} for at in best.tolist()
            ]
        found = []
        for own, start in zip(problems, starts, strict=True):
            outcome = CLASS_REFIT.run(own, start, NoProgress(), None)
            at = int(outcome.objective.nan_to_num(nan=-torch.inf).argmax())
            found.append({name: outcome.params[name][at] for name in truth})
    return found


def _posterior(fit: FitRecord, data: Any) -> tuple[Tensor, Tensor]:
    """P(profile | row), (N, C), and the profiles, (C, K)."""
    layer = attribute_model(fit, "classify_rows").layers[0]
    parts: list[Tensor] = []
    for program in chunks(fit, data):
        if not sums_out(fit, program):
            raise ValueError(
                f"classify_rows: the profiles of {layer.num_parents} attributes are too many to"
                " list; fit.posterior_latents(data) has the probability of each attribute"
            )
        parts.append(program.latent_marginals(fit.params)[layer.parent])  # (n, C)
        values = program.latent_values(fit.params)[layer.parent].to(parts[0])
    return torch.cat(parts), values


def _shares(said: Tensor, true: Tensor, values: Tensor, often: Tensor | float = 1.0) -> Tensor:
    """Expected shares of rows, (1 + 4 K,): right profile, and each attribute's 2 x 2 table.

    Args:
        said: the posterior that rows are classified by, (N, C).
        true: that by which they are judged.
        values: (C, K).
        often: how often each row counts, over the mean of that, (N, 1) or 1.
    """
    right = (often * true.gather(-1, said.argmax(-1, keepdim=True))).mean()
    chance, one = (true @ values).clamp(0, 1), ((said @ values) > 0.5).to(true)
    table = torch.stack(
        [
            torch.stack([(often * t * s).mean(0) for s in (1 - one, one)], -1)
            for t in (1 - chance, chance)
        ],
        -2,
    )  # (K, 2, 2)
    return torch.cat([right.reshape(1), table.ravel()])


def _traces(shares: Tensor) -> Tensor:
    """Shares of rows that are classified correctly on each attribute, (K,)."""
    return shares[1:].reshape(-1, 2, 2).diagonal(dim1=-2, dim2=-1).sum(-1)


def _replicates(
    fit: FitRecord, num_rows: int, cells_a_row: int, asked: int | None
) -> tuple[int, str]:
    """Number of data sets to simulate, and the reason for none."""
    refused = _other_rows(fit, num_rows) or _no_data_sets(fit)
    if asked:
        if refused:
            raise ValueError(
                f"classify_rows: num_replicates={asked} needs a point estimate and the rows of its"
                f" fit: {refused}; num_replicates=0 was expected"
            )
        return asked, ""
    if asked == 0:
        return 0, "num_replicates is 0"
    if refused:
        return 0, refused
    if num_rows * cells_a_row > MOST_CELLS:
        how = f"classify_rows(fit, data, num_replicates={REPLICATES})"
        return 0, f"it would take a while; {how} works it out"
    return REPLICATES, ""


def _overstated(fit: FitRecord, data: Any, num_replicates: int, seed: int) -> Tensor:
    """Optimism of the expected shares, averaged over simulated data sets, (1 + 4 K,)."""
    with quiet():  # refits on bounds, or that are not quite done, are part of the answer
        problem = problem_of(fit.model, checked_as_fitted(fit, data)[0], seed)
        found = replicates(problem, fit.params, REFIT, num_replicates, seed, NoProgress(), None)
    gaps: list[Tensor] = []
    for b in range(num_replicates):
        table = simulated_table(problem, fit.params, seed + b)
        true, values = _posterior(fit, table)
        refit = dataclasses.replace(fit, params={name: x[b] for name, x in found.items()})
        said, _ = _posterior(refit, table)
        gaps.append(_shares(said, said, values) - _shares(said, true, values))
    return torch.stack(gaps).mean(0)
