"""Latent attribute models of several groups.

Each group has a distribution of the attributes of its own; groups answer an item alike or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyro
import torch
from pyro.ops.indexing import Vindex
from torch import Tensor

from ppl_models.data.frames import as_frame, is_frame, row_of
from ppl_models.data.items import OpenModel
from ppl_models.data.tables import as_table
from ppl_models.deep_discrete_encoder import dispersion_prior, intercepts_prior, loadings_prior
from ppl_models.descriptions.layers import GeneralizedLinearLayer
from ppl_models.latent_attributes import LatentAttributeModel
from ppl_models.parts.blocks import Blocks
from ppl_models.parts.item_response import ItemResponse, LinearPredictor
from ppl_models.parts.responses import ResponseFamily
from ppl_models.parts.validation import check_kind, numbers_like, plain_fields

OWNER = "AttributeGroups"
LEAST_ROWS = 2  # of a group


@dataclass(frozen=True)
class AttributeGroups(OpenModel):
    r"""Cognitive diagnosis model of rows of several known groups.

    For a row of group g, the attributes of a :class:`~ppl_models.LatentAttributeModel` have a
    distribution of that group, and items are shared but for those that are free,

    .. math::

        \alpha \mid g \sim P_g, \qquad x_j \mid \alpha \sim F_j(\eta_j(\alpha), \gamma_j) \quad
        \text{or} \quad
        F_j(\eta_{jg}(\alpha), \gamma_{jg}) \text{ for items that are free}.

    An item that is shared means the same in every group, so that profiles can be compared between
    them; one that needs to be free has differential item functioning
    (:func:`inference.selection.differential_items` tests each).

    Data: a data frame with a column of group labels beside the items, wherever it stands; or an
    array (N, J + 1) whose last column is the number of the group, from 0.

    Sites: those of the root, with a leading dim of the groups, as ``profiles`` (G, 2^K);
    ``loadings`` (V, T), ``intercepts`` (V,) and ``dispersion`` of the versions of the items, one of
    each item that is shared, and one for each group, side by side, of each that is free; latent
    ``attributes`` (K,); observed ``items`` (V,), NaN at the versions of other groups. Priors are
    those of the model.

    Args:
        model: of one group, with its Q-matrix.
        groups: two or more labels; the order is that of the sites. None for those of the data, in
            the order of their names, read in a fit.
        free_items: items, by number from 0 or by name, that have parameters of their own in each
            group.
        column: name of the column of group labels in a data frame.

    Raises:
        ValueError: for a model without a Q-matrix, fewer than two groups or two of one label, an
            item that there is not, or all items free (then nothing is compared: fit each group by
            itself).

    Source: X. Xu and M. von Davier (2008), doi:10.1002/j.2333-8504.2008.tb02113.x (groups that
    share items).
    """

    model: LatentAttributeModel
    groups: tuple[str, ...] = None  # type: ignore[assignment]  # None while it waits for data
    free_items: tuple[int | str, ...] = ()
    column: str = "group"

    def __post_init__(self) -> None:
        plain_fields(self)
        check_kind(OWNER, "model", self.model, LatentAttributeModel, "a LatentAttributeModel")
        if self.model.q_matrix is None:
            raise ValueError(
                f"{OWNER}: a model with a q_matrix was expected: without it the attributes of two"
                " groups have no common names"
            )
        if self.model.covariates is not None:
            raise ValueError(
                f"{OWNER}: a model without covariates was expected: each group has a"
                " distribution of the"
                " attributes of its own"
            )
        if self.model.response.category_names(self.num_items):
            raise ValueError(
                f"{OWNER}: items that are no categories were expected, got"
                f" response={self.model.response!r}"
            )
        if not self.waits_for_data:
            if isinstance(self.groups, Iterable) and not isinstance(self.groups, str):
                labels = tuple(str(label) for label in self.groups)
            else:
                labels = ()
            if len(labels) < 2 or len(set(labels)) < len(labels):
                raise ValueError(
                    f"{OWNER}: groups must be two or more different labels, got {self.groups!r}"
                )
            object.__setattr__(self, "groups", labels)
        if isinstance(self.free_items, Iterable) and not isinstance(self.free_items, str):
            given = tuple(self.free_items)
        else:
            given = (self.free_items,)
        places = tuple(self._place(item) for item in given)
        if len(set(places)) < len(places):
            raise ValueError(f"{OWNER}: free_items names an item twice: {given!r}")
        if len(places) == self.num_items:
            raise ValueError(
                f"{OWNER}: free_items holds all {self.num_items} items, so that the groups share"
                " nothing; fit each by itself"
            )
        object.__setattr__(self, "free_items", tuple(sorted(places)))

    def _place(self, item: Any) -> int:
        names = self.model.item_names
        if isinstance(item, str):
            if names is None or item not in names:
                if names is None:
                    known = "which have no names"
                else:
                    known = f"which are called {', '.join(names)}"
                raise ValueError(
                    f"{OWNER}: free_items: {item!r} is not among the {self.num_items} items,"
                    f" {known}"
                )
            return names.index(item)
        if (
            isinstance(item, bool)
            or not isinstance(item, int | np.integer)
            or not 0 <= item < self.num_items
        ):
            raise ValueError(
                f"{OWNER}: free_items: an item's name, or its number from 0 to"
                f" {self.num_items - 1}, was expected, got {item!r}"
            )
        return int(item)

    @property
    def num_items(self) -> int:
        """Number of items, J."""
        return len(self.model.q_matrix)

    @property
    def waits_for_data(self) -> bool:
        """Tell whether the groups are still to be read off data."""
        return self.groups is None

    def for_data(self, data: Any) -> AttributeGroups:
        """Model with the groups that the rows are of, where it leaves them open."""
        if not self.waits_for_data:
            return self
        data = as_frame(data)
        if not is_frame(data):
            last = as_table(data)[0][:, -1]
            return replace(self, groups=tuple(map(str, range(int(last.nan_to_num(0.0).max()) + 1))))
        self._refuse_no_column(data)
        labels = data[self.column].dropna().tolist()
        texts = {f"{label:.15g}" if isinstance(label, float) else str(label) for label in labels}
        return replace(self, groups=tuple(sorted(texts)))

    def _refuse_no_column(self, frame: Any) -> None:
        if self.column not in list(frame.columns):
            raise ValueError(
                f"data: a column {self.column!r} of group labels was expected, got"
                f" {', '.join(map(str, frame.columns))}"
            )

    @property
    def versions(self) -> tuple[tuple[int, int | None], ...]:
        """Item and group of each version; no group where all groups share it."""
        out: list[tuple[int, int | None]] = []
        for j in range(self.num_items):
            out += (
                [(j, g) for g in range(len(self.groups))] if j in self.free_items else [(j, None)]
            )
        return tuple(out)

    def of_versions(self) -> LatentAttributeModel:
        """Model of the rows of one group, whose items are all versions."""
        items = [j for j, _ in self.versions]
        blocks = self.model.response.blocks(self.num_items)
        parts: list[tuple[ResponseFamily, int]] = []
        for family, columns, _ in blocks:
            parts.append((family, sum(columns.start <= j < columns.stop for j in items)))
        given = self.model.items
        return replace(
            self.model,
            q_matrix=tuple(self.model.q_matrix[j] for j in items),
            response=parts[0][0] if len(parts) == 1 else Blocks(*parts),
            items=tuple(given[j] for j in items) if isinstance(given, tuple) else given,
            num_items=None,
            num_attributes=None,
            item_names=None,
        )

    def layer(self) -> GeneralizedLinearLayer:
        """Layer of the item versions."""
        return self.of_versions().layers()[0]

    def split(self, data: Tensor) -> tuple[Tensor, Tensor]:
        """Split data into answers to the versions (..., N, V) and group numbers (..., N)."""
        number = data[..., -1].long()
        items = data[..., [j for j, _ in self.versions]]
        for v, (_, group) in enumerate(self.versions):
            if group is not None:
                items[..., v] = items[..., v].masked_fill(number != group, torch.nan)
        return items, number

    @property
    def site_dims(self) -> dict[str, tuple[str, ...]]:
        """Named dims of every parameter, latent and observed site, without the rows."""
        own, roots = self.of_versions().site_dims, self.model.root_layer().sites()
        return {name: ("group", *dims) if name in roots else dims for name, dims in own.items()} | {
            "items": ("column",)
        }

    @property
    def entry_names(self) -> dict[str, tuple[str, ...]]:
        """Names of the entries along the dims that have names of their own."""
        items = self.model.item_names or tuple(str(j) for j in range(self.num_items))
        names = tuple(
            items[j] if g is None else f"{items[j]} ({self.groups[g]})" for j, g in self.versions
        )
        return self.model.entry_names | {
            "group": self.groups,
            "item": names,
            "column": (*items, self.column),
        }

    def check_data(self, data: Any, for_fit: bool = True) -> tuple[Tensor, tuple[str, ...]]:
        """Data as a tensor (N, J + 1), the number of the group last, and the column names.

        Raises:
            ValueError: as :meth:`LatentAttributeModel.check_data`; without the column of groups,
                for a label that is missing or none of the groups, and, for a fit, for a group of
                fewer than two rows.
        """
        data = as_frame(data)
        if hasattr(data, "columns"):
            self._refuse_no_column(data)
            items, names = self.model.check_data(data.drop(columns=[self.column]), for_fit)
            labels = [
                None if value is None or value != value else self._label(value)
                for value in data[self.column].tolist()
            ]  # NaN is not itself
        else:
            table, _ = as_table(data)
            if table.shape[1] != self.num_items + 1:
                raise ValueError(
                    f"data: {self.num_items} items and the number of the group as the last column"
                    f" were expected, got shape {tuple(table.shape)}"
                )
            items, names = self.model.check_data(table[:, :-1], for_fit)
            places = {float(g): label for g, label in enumerate(self.groups)}
            labels = [
                None if value != value else places.get(value, str(value))
                for value in table[:, -1].tolist()
            ]
        number = []
        for row, label in enumerate(labels):
            if label is None:
                raise ValueError(
                    f"data: {row_of(data, row)} has no group; drop it, or give it one of"
                    f" {', '.join(self.groups)}"
                )
            if label not in self.groups:
                raise ValueError(
                    f"data: {row_of(data, row)} is of group {label!r}, and one of"
                    f" {', '.join(self.groups)} was expected"
                )
            number.append(self.groups.index(label))
        for g, label in enumerate(self.groups):
            if for_fit and number.count(g) < LEAST_ROWS:
                raise ValueError(
                    f"data: group {label!r} has {number.count(g)} rows; at least {LEAST_ROWS} were"
                    " expected: leave it out of groups, or join it to another"
                )
        return torch.cat([items, items.new_tensor(number).unsqueeze(-1)], -1), (*names, self.column)

    def _label(self, value: Any) -> str:
        """Label of a group as text; whole floats as integers, numbers where no label is one."""
        if not isinstance(value, float) or str(value) in self.groups:
            return str(value)
        if f"{value:.15g}" in self.groups or any(
            label.replace(".", "", 1).isdigit() for label in self.groups
        ):
            return f"{value:.15g}"
        return self.groups[int(value)] if value in range(len(self.groups)) else f"{value:.15g}"

    def expected_responses(self, params: Mapping[str, Tensor], profiles: Tensor) -> Tensor:
        """Expected responses E[x_v | profile] of every item version, (..., C, V)."""
        return self.of_versions().expected_responses(params, profiles)

    def __call__(self, data: Tensor | None = None, num_rows: int | None = None) -> Tensor:
        """Generative program; ``data`` (N, J + 1), or None to draw of each group in turn."""
        zero = torch.tensor(0.0, **numbers_like(OWNER, data, num_rows))
        own = self.of_versions()
        root, layer = own.root_layer(), own.layers()[0]
        root_params = {
            name: pyro.sample(name, prior.expand([len(self.groups)]).to_event(1))
            for name, prior in root.priors(zero).items()
        }
        loadings = pyro.sample(layer.loadings, loadings_prior(layer, zero))
        intercepts = pyro.sample(layer.intercepts, intercepts_prior(layer, loadings))
        floors, made_of = layer.coefficients(intercepts, loadings)
        dispersion = None
        if layer.dispersion is not None:
            dispersion = pyro.sample(
                layer.dispersion, dispersion_prior(own.response, layer.num_children, zero)
            )
        if data is None:
            items, group = (None, torch.arange(num_rows or 0) % len(self.groups))
        else:
            items, group = self.split(data)
        batch = len(group)
        with pyro.plate("units", num_rows or batch, subsample_size=batch):
            of_rows = {name: Vindex(value)[..., group, :] for name, value in root_params.items()}
            attributes = pyro.sample(
                layer.parent, root.distribution(of_rows), infer={"enumerate": "parallel"}
            )
            predictor = LinearPredictor(layer.features(attributes), made_of, floors)
            return pyro.sample(
                layer.child, ItemResponse(own.response, predictor, dispersion), obs=items
            )
