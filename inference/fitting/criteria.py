r"""Numbers that weigh the log-likelihood of a fit against its size, and how well its classes are
told apart.

With :math:`\ell` the log-likelihood at the estimate, p free parameters, n rows (steps, where rows
are sequences) and posterior class probabilities :math:`r_{ik}` of K classes, :math:`E = - \sum_{ik}
r_{ik} \log r_{ik}`:

.. math::
    \text{AIC} &= -2\ell + 2p, & \text{AICc} &= \text{AIC} + \frac{2p(p+1)}{n-p-1}, & \text{AIC3} &=
    -2\ell + 3p, \\
    \text{SABIC} &= -2\ell + p \log\tfrac{n+2}{24}, & \text{CAIC} &= \text{BIC} + p, & \text{ICL} &=
    \text{BIC} + 2E,
    \quad R^2_E = 1 - \frac{E}{n \log K}.

Smaller is better for all but :math:`R^2_E`, which says how well classes are told apart and nothing
of how many there are. At an estimate that a prior or a penalty moved, and at the mean of posterior
draws, :math:`\ell` is a little below its maximum. Of a model whose rows have activities that are
estimated, :math:`\ell` is conditional on them and p counts them.

Sources: H. Akaike (1974), doi:10.1109/TAC.1974.1100705; C. M. Hurvich and C.-L. Tsai (1989),
doi:10.1093/biomet/76.2.297; S. L. Sclove (1987), doi:10.1007/BF02294360; H. Bozdogan (1987),
doi:10.1007/BF02294361; C. Biernacki, G. Celeux and G. Govaert (2000), doi:10.1109/34.865189; G.
Celeux and G. Soromenho (1996), doi:10.1007/BF01246098.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from inference.fitting.posterior import posterior_latents

if TYPE_CHECKING:
    from inference.fitting.record import FitRecord


def aic(fit: FitRecord, price: float = 2.0) -> float:
    """-2 log-likelihood + ``price`` a free parameter: 2 is AIC, 3 AIC3.

    Raises:
        ValueError: here and in all criteria below, for a model whose parameters are no price, such
            as weights of networks.
    """
    fit.check_criterion("aic")
    return -2 * fit.log_likelihood + price * fit.num_parameters


def aicc(fit: FitRecord) -> float:
    """AIC for few rows.

    Raises:
        ValueError: where there are not at least two rows more than free parameters.
    """
    fit.check_criterion("aicc")
    rows, size = _rows(fit), fit.num_parameters
    if rows - size < 2:
        raise ValueError(
            f"aicc: at least two rows more than free parameters were expected, got {rows:,} rows"
            f" and {size:,} parameters"
        )
    return aic(fit) + 2 * size * (size + 1) / (rows - size - 1)


def sabic(fit: FitRecord) -> float:
    """BIC with the number of rows adjusted.

    Raises:
        ValueError: where parameters are read from different numbers of rows, for which no such
            adjustment is known.
    """
    fit.check_criterion("sabic")
    if fit.bic_price is not None:
        raise ValueError(
            f"sabic: the parameters of {fit.model_name} are read from different numbers of steps,"
            " and no adjustment is known for these; use bic"
        )
    return -2 * fit.log_likelihood + fit.num_parameters * math.log((_rows(fit) + 2) / 24)


def caic(fit: FitRecord) -> float:
    """BIC and one more for every free parameter."""
    fit.check_criterion("caic")
    return fit.bic + fit.num_parameters


def icl(fit: FitRecord, data: Any) -> float:
    """BIC and twice the entropy of the classes of the rows.

    Args:
        fit: of a model with one latent of several values a row; data: the rows of the fit.

    Raises:
        ValueError: for any other model, or data of other rows.
    """
    fit.check_criterion("icl")
    return fit.bic + 2 * _entropy("icl", fit, data)[0]


def entropy_r2(fit: FitRecord, data: Any) -> float:
    """How certain the posterior is of the classes of the rows: 1 where every row is certain, 0
    where no row says anything.

    The posterior takes the estimates for the truth and is too sure where rows are few;
    ``inference.inspection.class_accuracy`` corrects for that.

    Args, Raises: as :func:`icl`.
    """
    entropy, num_classes = _entropy("entropy_r2", fit, data)
    rows = fit.num_rows if fit.row_weights is None else float(fit.row_weights.sum())
    return 1 - entropy / (rows * math.log(num_classes))


def _rows(fit: FitRecord) -> float:
    return fit.num_observations or fit.num_rows


def _entropy(caller: str, fit: FitRecord, data: Any) -> tuple[float, int]:
    """E, and the number of classes."""
    sites = list((fit.latents or {}).items())
    if len(sites) != 1 or sites[0][1][0] != 1 or sites[0][1][1] < 2 or fit.structure.local_sites:
        raise ValueError(
            f"{caller}: it is defined for one latent of several values a row, which"
            f" {fit.model_name} does not have"
        )
    ((name, _),) = sites
    shares = posterior_latents(fit, data)[name].double()
    if shares.dim() != 2 or len(shares) != fit.num_rows:
        raise ValueError(
            f"{caller}: the {fit.num_rows:,} rows of the fit were expected, got {len(shares):,}"
        )
    if shares.shape[1] == 1:  # one bit, whose probability stands alone
        shares = torch.cat([1 - shares, shares], 1)
    entropies = -torch.special.xlogy(shares, shares).sum(-1)  # (N,)
    return (
        float(
            entropies.sum()
            if fit.row_weights is None
            else fit.row_weights.to(entropies) @ entropies
        ),
        shares.shape[1],
    )
