"""Encoders in units of their normal columns' noise."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from inference.base.component_distributions.units import log_volume
from inference.base.structure import Problem, Standard
from inference.programs.program import Params
from inference.structures.layers.glm import DISPERSION_LIMITS as LIMITS
from ppl_models.descriptions.layers import GeneralizedLinearLayer
from ppl_models.parts.penalties import ToBeChosen
from ppl_models.parts.responses import Normal

RIDGE = 1e-9  # of correlations of columns that repeat each other


def noise_units(layer: GeneralizedLinearLayer, items: Tensor) -> tuple[Tensor, Tensor]:
    r"""Centres and units of the columns, (J,) each: zero and one but for normal items.

    The unit of a normal item is the power of two next to :math:`s_j / \sqrt{(R^{-1})_{jj}}`, what
    the other columns leave of its standard deviation, R their correlations: near the standard
    deviation of its noise however much latents explain. Its centre is its mean, where the unit is
    not one. A column without a deviation is left as it is.

    Args:
        layer: of the items; items: (N, J), NaN where missing.
    """
    centres = items.new_zeros(items.shape[1], dtype=torch.float64)
    units = torch.ones_like(centres)
    if not any(type(part.family) is Normal for part in layer.parts()):
        return centres, units
    means = items.double().nanmean(0)
    centred = (items.double() - means).nan_to_num(0.0)
    squares = centred.square().sum(0).clamp(min=1e-300)
    left = squares / (~items.isnan()).sum(0)
    if len(items) > 2 * items.shape[1]:
        shape = centred / squares.sqrt()
        ridge = RIDGE * torch.eye(len(left)).to(shape)
        left = left / torch.linalg.inv(shape.mT @ shape + ridge).diagonal()
    for part in layer.parts():
        if type(part.family) is Normal:
            noise = torch.where(left[part.items] < LIMITS[0], 1.0, left[part.items]).sqrt()
            units[part.items] = noise.log2().round().exp2()
            centres[part.items] = torch.where(units[part.items] == 1, 0.0, means[part.items])
    return centres, units


def standard_items(problem: Problem) -> Standard | None:
    """Problem whose normal columns have noise of about one.

    Penalties that are to be chosen, and starts by singular values, then do not depend on the units
    of the columns. None where these are so already, or where a bound or a penalty is in the units
    of the data.
    """
    model: Any = problem.model
    penalty = getattr(model, "penalty", False)
    if not (penalty is None or isinstance(penalty, ToBeChosen)) or model.bound is not None:
        return None
    layer = problem.structure.layers[0]
    centres, units = noise_units(layer, problem.data)
    if bool((units == 1).all()):
        return None
    inner = problem.with_data(
        lambda data: ((data.double() - centres) / units).to(data), model, problem.structure
    )
    return Standard(
        inner,
        lambda params: _moved(layer, params, -centres / units, 1 / units),
        lambda params: _moved(layer, params, centres, units),
        log_volume(problem, units),
    )


def _moved(layer: GeneralizedLinearLayer, params: Params, centres: Tensor, units: Tensor) -> Params:
    """Parameters (..., as the sites say) of columns c + u x, from those of x."""
    new = dict(params)
    for name in (layer.intercepts, layer.loadings, layer.dispersion):
        if name in params:
            new[name] = params[name].clone()
    for part in layer.parts():
        if type(part.family) is not Normal:
            continue
        centre, unit = (own[part.items] for own in (centres, units))
        if layer.intercepts in new:
            own = new[layer.intercepts][..., part.rows]
            own.copy_(centre + unit * own)
        if layer.loadings in new:
            new[layer.loadings][..., part.rows, :] *= unit.unsqueeze(-1)
        if layer.dispersion in new:
            own = new[layer.dispersion][..., part.dispersion]
            own.copy_((own * unit.square()).clamp(*LIMITS))
    return new
