r"""Do groups answer an item differently although they have the same attributes? Tests of
differential item functioning, one item after another.

For item j of a model whose groups share it, the model is fitted again with the item free, from the
fit at hand, and

.. math:: 2 \{\ell(\text{j free}) - \ell(\text{j shared})\} \sim \chi^2_{(G - 1) d_j}

where the item functions alike, with :math:`d_j` its parameters. Two Wald tests on the free fit say
how it differs: with :math:`m_{jg} = b_{jg} + W_{jg} \cdot \mu` the mean predictor over all
profiles, *uniform* differences are those of :math:`m_{jg}` (G - 1 degrees of freedom),
*non-uniform* ones those of the loadings :math:`W_{jg}`, that is, of what attributes do.

Each item is tested against all others as anchors: where many items differ, those that do not may
look as if they did. Free the worst and test again.

Source: D. Thissen, L. Steinberg and H. Wainer (1993), in P. W. Holland and H. Wainer (eds.),
Differential Item Functioning; J. de la Torre and Y.-S. Lee (2013), doi:10.1111/jedm.12022 (Wald
tests of items of cognitive diagnosis).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from inference.base.drawing import Answer
from inference.engines.em import EM
from inference.fitting.fit import fit as fitted
from inference.fitting.record import FitRecord
from inference.fitting.result import Fit
from inference.inspection.attributes import holm
from inference.programs.program import Params
from inference.structures.attribute_groups import AttributeGroupsStructure
from inference.uncertainty import Uncertainty, standard_errors

if TYPE_CHECKING:
    import pandas as pd


LEVEL = 0.05
AGAINST_OTHERS = (
    "Items are tested against all others, so free the clearest one (free_items=...), fit, and test"
    " again."
)


@dataclass(frozen=True, eq=False, repr=False)
class DifferentialItems(Answer):
    """Tests of items, one entry each; NaN where a test could not be made.

    Args:
        items: their names.
        statistic: of the likelihood ratio; degrees: of freedom; p_value; p_adjusted: by Holm, over
            these items.
        uniform, uniform_p: Wald statistic of equal mean predictors, and its p-value, with one
            degree a group but one.
        non_uniform, non_uniform_p: Wald statistic of equal loadings, and its p-value.
        effect: the largest difference between groups of the expected response, over all profiles.
    """

    items: tuple[str, ...]
    statistic: np.ndarray
    degrees: np.ndarray
    p_value: np.ndarray
    p_adjusted: np.ndarray
    uniform: np.ndarray
    uniform_p: np.ndarray
    non_uniform: np.ndarray
    non_uniform_p: np.ndarray
    effect: np.ndarray

    @property
    def different(self) -> tuple[str, ...]:
        """Items that function differently, at 5 % for all of them together; the clearest first."""
        return clear_items(self.items, self.p_value, self.p_adjusted)

    @property
    def table(self) -> pd.DataFrame:
        """One line an item."""
        import pandas as pd

        names = [field.name for field in fields(self) if field.name != "items"]
        return pd.DataFrame(
            {name: getattr(self, name) for name in names}, index=pd.Index(self.items, name="item")
        )

    @property
    def headline(self) -> str:
        return said_of_items(self.items, self.different)

    @property
    def sentences(self) -> tuple[str, ...]:
        if not self.different:
            return ()
        largest = [f"{name} ({self.effect[self.items.index(name)]:.2f})" for name in self.different]
        return (
            (
                "The largest difference between groups of what is expected of people with the same"
                f" attributes: {', '.join(largest)}."
            ),
            AGAINST_OTHERS,
        )


def clear_items(
    items: tuple[str, ...], p_value: np.ndarray, p_adjusted: np.ndarray
) -> tuple[str, ...]:
    """Those that function differently, the clearest first."""
    order = np.argsort(np.nan_to_num(p_value, nan=1.0), kind="stable")
    return tuple(items[i] for i in order if p_adjusted[i] < LEVEL)


def said_of_items(items: tuple[str, ...], different: tuple[str, ...]) -> str:
    """The answer in one sentence."""
    if not different:
        return (
            f"None of the {len(items)} items that the groups share functions differently, as far as"
            " these rows can tell."
        )
    return (
        f"{len(different)} of the {len(items)} items that the groups share function differently:"
        " people of different groups who have the same attributes answer them differently:"
        f" {', '.join(different)}."
    )


def differential_items(
    fit: Fit, data: Any, items: Sequence[int | str] | None = None, method: EM | None = None
) -> DifferentialItems:
    """Test items that the groups share.

    Args:
        fit: of an :class:`~ppl_models.AttributeGroups` model.
        data: the data of the fit.
        items: by number from 0 or by name; all that are shared if None.
        method: of the fits with an item free; ``EM(tolerance=1e-9)`` if None.

    Raises:
        ValueError: for a fit of another model, an item that there is not or that is free already,
            or where no other item would be shared.
    """
    model = groups_of_fit(fit, "differential_items").model
    shared = [j for j in range(model.num_items) if j not in model.free_items]
    try:
        chosen = (
            shared if items is None else list(replace(model, free_items=tuple(items)).free_items)
        )
    except ValueError as error:
        raise ValueError(f"differential_items: items: {error}") from None
    taken = [j for j in chosen if j not in shared]
    if taken:
        raise ValueError(f"differential_items: item {taken[0]} is free in this fit already")
    if len(shared) < 2:
        raise ValueError(
            "differential_items: one item is shared; with it free nothing would make the groups"
            " comparable"
        )
    names = model.model.item_names or tuple(str(j) for j in range(model.num_items))
    columns: list[tuple[float, ...]] = []
    for j in chosen:
        own = replace(model, free_items=(*model.free_items, j))
        again = fitted(
            own, data, method or EM(tolerance=1e-9), init=spread_params(model, own, fit.params)
        )
        versions = [v for v, (item, _) in enumerate(own.versions) if item == j]
        columns.append(_tests(fit, again, data, versions))
    table = np.array(columns)
    statistic, degrees, p_value, uniform, uniform_p, non_uniform, non_uniform_p, effect = table.T
    return DifferentialItems(
        tuple(names[j] for j in chosen),
        statistic,
        degrees,
        p_value,
        holm(p_value),
        uniform,
        uniform_p,
        non_uniform,
        non_uniform_p,
        effect,
    )


def groups_of_fit(fit: FitRecord, owner: str) -> AttributeGroupsStructure:
    """The structure of a fit of several groups.

    Raises:
        ValueError: for another model, or weighted rows.
    """
    fit.refuse_weights(owner)
    structure = fit.structure
    if not isinstance(structure, AttributeGroupsStructure):
        raise ValueError(
            f"{owner}: a fit of an AttributeGroups model was expected, got one of {fit.model_name}"
        )
    return structure


def spread_params(model: Any, own: Any, params: Params) -> Params:
    """Parameters of the same law with more items free: their versions begin alike."""
    before = {version: v for v, version in enumerate(model.versions)}
    places = [before.get(version, before.get((version[0], None), 0)) for version in own.versions]
    layer, roots = model.layer(), model.model.root_law().sites()
    out = {name: value for name, value in params.items() if name in roots}
    out |= {name: params[name][places] for name in (layer.loadings, layer.intercepts)}
    if layer.dispersion is not None:
        out[layer.dispersion] = _dispersions(model, own, params[layer.dispersion], places)
    return out


def _dispersed(model: Any) -> list[int]:
    """The versions that have a dispersion, in its order."""
    layer = model.layer()
    blocks = layer.response.blocks(layer.num_children)
    return [
        v
        for _, columns, part in blocks
        if part.stop > part.start
        for v in range(layer.num_children)[columns]
    ]


def _dispersions(model: Any, own: Any, value: Tensor, places: list[int]) -> Tensor:
    known = {v: d for d, v in enumerate(_dispersed(model))}
    return value[[known[places[v]] for v in _dispersed(own)]]


def _tests(fit: Fit, again: Fit, data: Any, versions: list[int]) -> tuple[float, ...]:
    from scipy.stats import chi2

    statistic = max(0.0, 2 * (again.log_likelihood - fit.log_likelihood))
    degrees = again.num_parameters - fit.num_parameters
    model = again.structure.model
    layer = model.layer()
    loadings = again.params[layer.loadings]
    used = (
        (layer.graph[versions[0]] if layer.graph is not None else loadings[versions[0]] != 0)
        .nonzero()
        .ravel()
        .tolist()
    )
    profiles = torch.cartesian_prod(
        *[torch.tensor([0.0, 1.0], dtype=loadings.dtype)] * layer.num_parents
    ).reshape(-1, layer.num_parents)
    expected = model.expected_responses(again.params, profiles)[:, versions]
    effect = float((expected.amax(-1) - expected.amin(-1)).max())
    walds = [np.nan] * 4
    try:
        errors = standard_errors(again, data, hold_bounds=True)
    except ValueError:  # an estimate without a normal law: the likelihood ratio stands alone
        errors = None
    if errors is not None:
        centre = layer.centre(loadings)
        level = [
            {f"{layer.intercepts}[{v}]": 1.0}
            | {f"{layer.loadings}[{v},{t}]": float(centre[t]) for t in used}
            for v in versions
        ]
        rise = [{f"{layer.loadings}[{v},{t}]": 1.0} for t in used for v in versions]
        size = len(versions)
        walds[:2] = _wald(errors, [_less(level[i], level[0]) for i in range(1, size)])
        walds[2:] = _wald(
            errors,
            [
                _less(rise[k * size + i], rise[k * size])
                for k in range(len(used))
                for i in range(1, size)
            ],
        )
    return (statistic, float(degrees), float(chi2.sf(statistic, degrees)), *walds, effect)


def _less(first: dict[str, float], second: dict[str, float]) -> dict[str, float]:
    return {name: first.get(name, 0.0) - second.get(name, 0.0) for name in {*first, *second}}


def _wald(errors: Uncertainty, contrasts: list[dict[str, float]]) -> tuple[float, float]:
    """Statistic and p-value of all contrasts being zero; NaN where one has an entry without a
    standard error.
    """
    from scipy.stats import chi2

    place = {name: i for i, name in enumerate(errors.names)}
    if any(name not in place for contrast in contrasts for name in contrast):
        return np.nan, np.nan
    matrix = torch.zeros(len(contrasts), len(errors.names), dtype=errors.covariance.dtype)
    for row, contrast in enumerate(contrasts):
        for name, weight in contrast.items():
            matrix[row, place[name]] = weight
    value = matrix @ errors.estimate
    spread = matrix @ errors.covariance @ matrix.mT
    statistic = float(value @ torch.linalg.solve(spread, value))
    return statistic, float(chi2.sf(statistic, len(contrasts)))
