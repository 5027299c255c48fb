r"""Rows classified by their attributes, and how far to trust that.

With :math:`\varphi_{i\alpha}(\theta) = P(\alpha \mid x_i; \theta)` and :math:`m_{ik} = P(\alpha_k = 1 \mid x_i)`, the expected shares of rows
classified rightly by the most probable profile :math:`\hat\alpha_i`, and attribute by attribute, are

.. math:: \hat\tau = \frac1N \sum_i \max_\alpha \varphi_{i\alpha}, \qquad
    \hat\tau_k = \frac1N \sum_i \max(m_{ik}, 1 - m_{ik}),

and the expected agreement of two independent draws from a row's posterior

.. math:: \hat\gamma = \frac1N \sum_i \sum_\alpha \varphi_{i\alpha}^2, \qquad
    \hat\gamma_k = \frac1N \sum_i \{ m_{ik}^2 + (1 - m_{ik})^2 \}.

At the true parameters :math:`\theta_0` they are right. At an estimate the shares are too high. What the classification really reaches is
:math:`\tau = N^{-1} \sum_i \varphi_{i \hat\alpha_i}(\theta_0)`, and with :math:`\delta = \hat\theta - \theta_0`

.. math:: \hat\tau - \tau = \frac1N \sum_i \Bigl\{ \varphi_{i \hat\alpha_i}'(\hat\theta)^\top \delta - \tfrac12 \delta^\top \varphi_{i \hat\alpha_i}''(\hat\theta) \delta \Bigr\} + O_P(N^{-3/2}),

whose mean is of the order of parameters over rows, and positive: row i has moved :math:`\hat\theta` towards what makes its own answers likely (:math:`\delta` holds
:math:`I^{-1} s_i`), :math:`\hat\alpha_i` was chosen as the largest under the same error, and estimated effects are on average too large. That mean is a smooth function
of :math:`\theta_0`, so that its value at :math:`\hat\theta` is right to the same order, and there it can be seen: for data sets :math:`x^b` simulated from
:math:`\hat\theta`, with estimates :math:`\hat\theta^b`,

.. math:: o = \frac1B \sum_b \frac1N \sum_i \Bigl\{ \max_\alpha \varphi_\alpha(x_i^b; \hat\theta^b) - \varphi_{\hat\alpha_i^b}(x_i^b; \hat\theta) \Bigr\},
    \qquad \hat\tau - o,

and likewise each entry of the tables of true against classified attributes. The posterior at :math:`\hat\theta` takes the place of the profiles that were simulated,
whose mean it is, so that few data sets do. (Averaging :math:`\varphi` over the normal law of the estimate needs no data sets, but mends the second
term alone.) ``benchmarks/attributes.py`` measures what is left.

Source: W. Wang, L. Song, P. Chen, Y. Meng and S. Ding (2015), doi:10.1111/jedm.12096; Y. Cui, M. J. Gierl and H.-H. Chang (2012),
doi:10.1111/j.1745-3984.2011.00158.x; B. Efron (1983), doi:10.1080/01621459.1983.10477973 (the optimism of an error rate, by the bootstrap).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inference.base.progress import NoProgress
from inference.bootstrap import replicates, simulated_table
from inference.engines.em import EM
from inference.fitting.columns import checked_as_fitted
from inference.fitting.names import labels_of
from inference.fitting.problem import problem_of
from inference.fitting.record import FitRecord
from inference.fitting.rows import chunks, sums_out
from inference.inspection.attributes import attribute_model
from inference.programs.alone import quiet
from ppl_models.parts.showing import shows_briefly
from ppl_models.parts.validation import check_size

__all__ = ["Classification", "classify_rows"]

LEAST_ACCURACY = 0.8  # below it an attribute is flagged
REPLICATES = 10
MOST_CELLS = 2**22  # rows times profiles times items, up to which data sets are simulated unasked
REFIT = EM(tolerance=1e-5, max_iterations=500)


@shows_briefly
@dataclass(frozen=True, eq=False)
class Classification:
    """What the answers of each row say of its attributes.

    Args:
        attributes: K names.
        profiles: the most probable profile of each row, (N, K) of 0 and 1.
        profile_probability: of that profile, (N,).
        probabilities: P(attribute = 1 | row), (N, K).
        accuracy: expected share of rows whose most probable profile is the true one.
        consistency: expected agreement of two draws of a row's profile from its posterior.
        attribute_accuracy, attribute_consistency: the same attribute by attribute, with each classified by itself, (K,).
        confusion: expected shares of rows, (K, 2, 2): attribute k truly 0 or 1 (rows) and classified 0 or 1 (columns).
        overstated: what was taken off the mean of ``profile_probability`` for ``accuracy``, because parameters were estimated from the same rows.
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
        """The attributes that fewer than four rows in five are expected to be classified rightly on."""
        return tuple(name for name, share in zip(self.attributes, self.attribute_accuracy, strict=True) if share < LEAST_ACCURACY)


def classify_rows(fit: FitRecord, data: Any, num_replicates: int | None = None, seed: int = 0) -> Classification:
    """Attributes and profiles of rows, with the expected accuracy and consistency of the classification.

    Args:
        fit: of a :class:`~ppl_models.LatentAttributeModel`.
        data: (N, J), NaN where missing: the rows of the fit, or others.
        num_replicates: data sets that are simulated and fitted to see by how much the posterior overstates its accuracy; 0 for none. Ten if None, where that
            takes seconds: for the rows of the fit, up to four million rows times profiles times items. Accuracies of other rows are what the posterior says,
            :attr:`Classification.note` tells.
        seed: of the first data set.

    Raises:
        ValueError: for another model, data that do not fit it, or more profiles than can be listed; where data sets are asked for, for other rows than those
            of the fit, or posterior draws.
    """
    layer = attribute_model(fit, "classify_rows").layers[0]
    if num_replicates is not None:
        check_size("classify_rows", "num_replicates", num_replicates, least=0)
    check_size("classify_rows", "seed", seed, least=0)
    posterior, values = _posterior(fit, data)
    top, place = posterior.max(-1)
    chance = (posterior @ values).clamp(0, 1)
    own = _shares(posterior, posterior, values)
    wanted, note = _replicates(fit, len(posterior), len(values) * layer.num_items, num_replicates)
    off = _overstated(fit, data, wanted, seed) if wanted else torch.zeros_like(own)
    mended = (own - off).clamp(0, 1)
    return Classification(
        tuple(str(name) for name in labels_of(fit, "attribute", layer.num_parents)),
        values[place].cpu().numpy(),
        top.cpu().numpy(),
        chance.cpu().numpy(),
        float(mended[0]),
        float(posterior.square().sum(-1).mean()),
        _traces(mended).cpu().numpy(),
        (chance.square() + (1 - chance).square()).mean(0).cpu().numpy(),
        mended[1:].reshape(-1, 2, 2).cpu().numpy(),
        float(own[0] - mended[0]),
        (_traces(own) - _traces(mended)).cpu().numpy(),
        note,
    )


def _posterior(fit: FitRecord, data: Any) -> tuple[Tensor, Tensor]:
    """P(profile | row), (N, C), and the profiles, (C, K)."""
    layer = attribute_model(fit, "classify_rows").layers[0]
    parts: list[Tensor] = []
    for program in chunks(fit, data):
        if not sums_out(fit, program):
            raise ValueError(
                f"classify_rows: the profiles of {layer.num_parents} attributes are too many to list; fit.posterior_latents(data) has the "
                "probability of each attribute"
            )
        parts.append(program.latent_marginals(fit.params)[layer.parent])  # (n, C)
        values = program.latent_values(fit.params)[layer.parent].to(parts[0])
    return torch.cat(parts), values


def _shares(said: Tensor, true: Tensor, values: Tensor) -> Tensor:
    """Expected shares of rows, (1 + 4 K,): with the right profile; and of each attribute, truly 0 or 1 (rows) and classified 0 or 1 (columns).

    Args:
        said: the posterior that rows are classified by, (N, C); true: that by which they are judged; values: (C, K).
    """
    right = true.gather(-1, said.argmax(-1, keepdim=True)).mean()
    chance, one = (true @ values).clamp(0, 1), ((said @ values) > 0.5).to(true)
    table = torch.stack([torch.stack([(t * s).mean(0) for s in (1 - one, one)], -1) for t in (1 - chance, chance)], -2)  # (K, 2, 2)
    return torch.cat([right.reshape(1), table.ravel()])


def _traces(shares: Tensor) -> Tensor:
    """Shares of rows that are classified rightly on each attribute, (K,)."""
    return shares[1:].reshape(-1, 2, 2).diagonal(dim1=-2, dim2=-1).sum(-1)


def _replicates(fit: FitRecord, num_rows: int, cells_a_row: int, asked: int | None) -> tuple[int, str]:
    """How many data sets to simulate, and why none."""
    others = f"these are {num_rows:,} rows, and the fit is of {fit.num_rows:,}"
    refused = others if num_rows != fit.num_rows else "the fit has posterior draws" if fit.draws is not None else ""
    if asked:
        if refused:
            raise ValueError(f"classify_rows: num_replicates={asked} needs a point estimate and the rows of its fit: {refused}; num_replicates=0 was expected")
        return asked, ""
    if asked == 0:
        return 0, "num_replicates is 0"
    if refused:
        return 0, refused
    if num_rows * cells_a_row > MOST_CELLS:
        return 0, f"it would take a while; classify_rows(fit, data, num_replicates={REPLICATES}) works it out"
    return REPLICATES, ""


def _overstated(fit: FitRecord, data: Any, num_replicates: int, seed: int) -> Tensor:
    """By how much the shares that an estimate expects exceed the true ones, on average over data sets simulated from it, (1 + 4 K,)."""
    with quiet():  # refits on bounds, or that are not quite done, are part of the answer
        problem = problem_of(fit.model, checked_as_fitted(fit, data)[0], seed)
        found = replicates(problem, fit.params, REFIT, num_replicates, seed, NoProgress(), None)
    gaps: list[Tensor] = []
    for b in range(num_replicates):
        table = simulated_table(problem, fit.params, seed + b)
        true, values = _posterior(fit, table)
        said, _ = _posterior(dataclasses.replace(fit, params={name: value[b] for name, value in found.items()}), table)
        gaps.append(_shares(said, said, values) - _shares(said, true, values))
    return torch.stack(gaps).mean(0)
