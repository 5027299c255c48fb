"""Selection of the number of latents, by a rule, a criterion or held-out cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import is_dataclass, replace
from typing import Any

from inference.base.structure import Method
from inference.engines.em import EM
from inference.fitting.problem import model_of_data
from inference.selection.dimension import NAMED, Criterion, Selection, select_dimension
from inference.selection.layers import LayerSizes, has_layers, select_layers
from inference.selection.order_selection.counting import candidate_of, has_rule
from inference.selection.order_selection.result import HowMany
from inference.selection.order_selection.select_components import select_components
from inference.selection.saturation import Saturation, saturation
from inference.structures.classifiers.structure import ClassifierStructure
from inference.structures.factorization.factorize import Factorize
from inference.structures.registry import structure_of
from ppl_models.parts.validation import Seed, as_seed

EXAMPLE = 2  # size of the model by which a kind is recognised where no grid is given


def select(
    model: Any,
    data: Any,
    grid: Sequence[Any] | None = None,
    *,
    criterion: str | Criterion | None = None,
    num_restarts: int | None = None,
    method: Method | None = None,
    seed: Seed = 0,
    progress: bool = False,
    **settings: Any,
) -> HowMany | Selection | Saturation | LayerSizes:
    """Choose the number of latents of a model.

    ===================  ===================================================  ===================
    criterion            decides by                                           answers with
    ===================  ===================================================  ===================
    "rule"               :func:`select_components`: several distributions,    :class:`HowMany`
                         two penalties, a check of the noise
    "saturation"         :func:`saturation`: held-out cost of independent     :class:`Saturation`
                         classifiers
    "layers"             sizes and depth of a deep discrete encoder, layer    :class:`LayerSizes`
                         by layer (:mod:`inference.selection.layers`)
    "acdc", "ebic", ...  :func:`select_dimension`: one criterion of it        :class:`Selection`
    ===================  ===================================================  ===================

    Args:
        model: a family, called with the number of columns and the size; a function from a size to a
            model; or, where its kind has a rule, a model of any size.
        data: the rows.
        grid: sizes to compare; None for those that the rule or the saturation compares by itself.
        criterion: "rule", "saturation", "layers", or a criterion of :func:`select_dimension`, by
            name or with its settings. None for "rule" where the kind has one, "saturation" for
            independent classifiers, "layers" for an encoder without a grid, else "ebic".
        num_restarts: of each fit; None for ten by the rule, else the family's own number.
        method: settings of every fit.
        seed: one seed, one answer.
        progress: show a bar on standard error.
        **settings: of :func:`select_components` (``distributions``, ``bootstrap``) or
            :func:`saturation` (``held_out``, ``bound``).

    Raises:
        ValueError: for an unknown criterion, settings or no grid where a criterion needs one; or as
            the function that answers.
    """
    seed = as_seed("select", seed)
    if is_dataclass(model) and not isinstance(model, type):
        model = model_of_data(model, data)
    if criterion == "layers" or (criterion is None and grid is None and has_layers(model)):
        refused = {"grid": grid, "num_restarts": num_restarts, "method": method}
        given = [name for name, value in (refused | settings).items() if value is not None]
        if given:
            raise ValueError(
                f"select: criterion 'layers' takes no {', '.join(given)}; give a grid and another"
                " criterion, such as 'ebic'"
            )
        return select_layers(model, data, seed=seed, progress=progress)
    shared: dict[str, Any] = {"method": method, "seed": seed, "progress": progress}
    if criterion is None:
        criterion = _criterion(_example(model, data, grid), method)
    if criterion == "rule":
        starts = 10 if num_restarts is None else num_restarts
        return select_components(model, data, grid, num_restarts=starts, **shared, **settings)
    if criterion == "saturation":
        sizes: dict[str, Any] = {} if grid is None else {"grid": grid}
        return saturation(model, data, num_restarts=num_restarts, **sizes, **shared, **settings)
    if isinstance(criterion, str) and criterion not in NAMED:
        names = ", ".join((*NAMED, "saturation", "layers"))
        raise ValueError(f"select: criterion must be one of {names}, got {criterion!r}")
    if settings:
        raise ValueError(
            f"select: {', '.join(settings)} belong to 'rule' or 'saturation', got criterion ="
            f" {criterion!r}; give settings of a criterion in it, such as HeldOut(share=0.3)"
        )
    if grid is None:
        raise ValueError(f"select: grid must hold the sizes that {criterion!r} compares, got None")
    family = model
    if is_dataclass(model) and not isinstance(model, type):
        number = candidate_of(model).counting.number
        family = lambda size: replace(model, **{number: size})  # noqa: E731
    return select_dimension(family, data, grid, criterion, num_restarts=num_restarts, **shared)


def _example(model: Any, data: Any, grid: Sequence[Any] | None) -> Any:
    if is_dataclass(model) and not isinstance(model, type):
        return model
    size = max(grid) if grid else EXAMPLE
    if not isinstance(model, type):
        return model_of_data(model(size), data)
    if len(getattr(data, "shape", ())) != 2:
        raise ValueError(
            "select: a table (rows, items) was expected; give a function from a size to a model"
        )
    return model(int(data.shape[1]), size)


def _criterion(example: Any, method: Method | None) -> str:
    if has_rule(example) and (method is None or isinstance(method, EM | Factorize)):
        return "rule"
    return "saturation" if isinstance(structure_of(example), ClassifierStructure) else "ebic"
