"""Columns of a fit: rows under them, observed tables, and names of the entries of sites."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from inference.base.streaming.row_blocks import SAMPLE_ROWS, RowBlocks, drawn_rows
from inference.base.structure import (
    dispersion_items,
    named_estimates,
    numeric_items,
    predictor_names,
    threshold_labels,
)
from inference.programs.arguments import Call
from inference.programs.data import checked
from inference.programs.posterior_predictive import observed_names, observed_values, replicate
from inference.programs.program import Params, Program
from ppl_models.data.frames import SparseFrame, as_frame, column_names, is_frame
from ppl_models.data.sequences import in_places
from ppl_models.data.tables import (
    Columns,
    ColumnsWarning,
    as_table,
    checks_data,
    first_tensor,
    map_tensors,
    quoted,
)

if TYPE_CHECKING:
    from inference.fitting.record import FitRecord

NAMED_DIMS = {
    "numeric_item": numeric_items,
    "threshold": threshold_labels,
    "predictor": predictor_names,
    "dispersed_item": dispersion_items,
}


Names = Mapping[str, Sequence[str]]


# ---------------------------------------------------------------- rows


def as_fitted(fit: FitRecord, data: Any) -> Any:
    """Data with the columns of the fit, in its order, on the device of its estimates.

    Whatever is no data frame (or list of them), or was fitted without names, keeps its form; the
    arguments of a program of several are a dict by name.

    Args:
        fit: which columns, and in what order.
        data: as the fit takes it.

    Raises:
        ValueError: naming columns of the fit that the frame lacks, or names that two of its columns
            have.

    Warns:
        ColumnsWarning: naming columns that the fit does not know.
    """
    if isinstance(data, RowBlocks):
        raise ValueError(
            "data: rows in memory were expected, got RowBlocks, of which posterior_latents,"
            " decode_latents, log_likelihood_rows, predict, score, summary and report take one"
            " block at a time: give some of them, blocks.sample(20_000)"
        )
    data = _beside_estimates(fit, data)
    if isinstance(fit.model, Call):
        return {name: _under_columns(fit, part) for name, part in fit.model.laid_out(data).items()}
    return _under_columns(fit, data)


def _beside_estimates(fit: FitRecord, data: Any) -> Any:
    """Data on the device of the estimates."""
    if isinstance(data, dict):
        parts = {name: _beside_estimates(fit, part) for name, part in data.items()}
        return data if all(part is data[name] for name, part in parts.items()) else parts
    device = next((value.device for value in fit.params.values()), None)
    if isinstance(data, list | tuple) and all(isinstance(part, Tensor) for part in data):
        is_there = all(part.device == device for part in data)  # one a sequence
        return data if is_there else [part.to(device) for part in data]
    return map_tensors(lambda x: x.to(device) if isinstance(x, Tensor) else x, data)


def _under_columns(fit: FitRecord, data: Any) -> Any:
    data, wanted = as_frame(data), fit.item_names
    if isinstance(data, list | tuple) and data and all(is_frame(as_frame(part)) for part in data):
        return [_under_columns(fit, part) for part in data]  # one a sequence
    is_sparse = isinstance(data, SparseFrame)
    if not (is_sparse or is_frame(data)) or not wanted:
        return data
    read_as = fit.read_as or {}
    if read_as and not is_sparse and fit.structure.row_columns:
        data = in_places(data, {k: v for k, v in read_as.items() if k not in column_names(data)})
    names = data.names if is_sparse else column_names(data)
    beside = fit.structure.row_columns
    missing = [name for name in wanted if name not in names]
    if names == wanted or (missing and _are_numbers(wanted)):
        return data
    if missing:
        raise ValueError(
            f"data: the columns of the fit were expected, but {quoted(missing)} {_is(missing)}"
            f" missing; the columns are {quoted(names)}"
        )
    chosen = [*(name for name in names if name in beside and name not in wanted), *wanted]
    if is_sparse:
        return data.chosen(chosen)
    columns = data[[data.columns[names.index(name)] for name in chosen]]
    unknown = [name for name in names if name not in (*chosen, read_as.get("row"))]
    if unknown and _by_place(fit, columns):
        warnings.warn(
            f"the fit does not know the columns {quoted(unknown)}, which are left out",
            ColumnsWarning,
            stacklevel=3,
        )
    return columns


def sample_of(fit: FitRecord, blocks: RowBlocks) -> Any:
    """Sample of a fit's rows from blocks, for methods that want rows in memory.

    Of a table, a frame under the columns of the fit; its index holds the numbers of the rows.
    """
    rows = blocks.sample(SAMPLE_ROWS, fit.seed)
    if (
        not is_frame(as_frame(rows))
        and getattr(rows, "ndim", 0) == 2
        and rows.shape[1] == len(fit.item_names)
    ):
        import pandas as pd

        rows = pd.DataFrame(
            np.asarray(rows),
            blocks.begin + drawn_rows(len(blocks), SAMPLE_ROWS, fit.seed),
            list(fit.item_names),
        )
    return as_fitted(fit, rows)


def checked_as_fitted(
    fit: FitRecord, data: Any, for_fit: bool = False, takes_sparse: bool = False
) -> tuple[Any, tuple[str, ...]]:
    """Data under the columns of the fit as tensors, and their names.

    See :func:`as_fitted` and :func:`inference.programs.data.checked`.
    """
    return checked(fit.model, as_fitted(fit, data), for_fit, takes_sparse)


def count_rows(fit: FitRecord, data: Any) -> int:
    """Number of rows of data, as a fit of them would count."""
    tensors, _ = checked_as_fitted(fit, data, takes_sparse=True)
    if checks_data(fit.model):
        return len(first_tensor(tensors))
    return Program(fit.model, tensors).num_rows


def _by_place(fit: FitRecord, frame: Any) -> bool:
    """Tell whether every column counts, as the program does not read columns by name."""
    if isinstance(fit.model, Call):
        return False
    return checks_data(fit.model) or not isinstance(checked(fit.model, frame)[0], Columns)


def _are_numbers(wanted: tuple[str, ...]) -> bool:
    """Tell whether columns are numbered by the library: the fit was made of an array."""
    of_sequences = (*(f"feature_{i}" for i in range(len(wanted) - 1)), "action")
    return wanted in (tuple(map(str, range(len(wanted)))), of_sequences)


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


# ---------------------------------------------------------------- observed tables


def as_matrix(fit: FitRecord, data: Any) -> np.ndarray:
    """``data`` as an array (N, J), NaN where missing, checked as the model checks it.

    Raises:
        ValueError: if ``data`` does not fit the model, or is not one table of items.
    """
    data = as_fitted(fit, data)
    table = checked(fit.model, data) if checks_data(fit.model) else as_table(data)
    values: np.ndarray = table[0].detach().cpu().numpy().astype(np.float64)
    return np.where(
        np.isinf(values), np.nan, values
    )  # infinity is what lies after the end of a sequence


def observed_sites(fit: FitRecord, data: Any = None) -> tuple[str, ...]:
    """Names of the observed sites, described by the model or found given ``data``."""
    described = fit.structure.observed_sites()
    if described or data is None:
        return described
    return observed_names(Program(fit.model, checked_as_fitted(fit, data)[0]))


def can_simulate(fit: FitRecord, data: Any = None) -> bool:
    """Simulation test: the program can be called as ``model(None, num_rows)``.

    A program that draws rows like others needs these, and a user's program takes them.
    """
    if data is not None and not checks_data(fit.model):
        return True
    if fit.structure.stand_in() is not None:
        return data is not None
    names = list(inspect.signature(fit.model).parameters)
    return len(names) > 1 and names[1] == "num_rows"


def replicated_tables(
    fit: FitRecord, data: Any, num_simulations: int, seed: int
) -> tuple[dict[str, np.ndarray], list[dict[str, np.ndarray]]]:
    """Observed tables by name, one row a unit, and those of data sets drawn from the fit.

    Args:
        fit: the fit; data: as it takes it.
        num_simulations: data sets; seed: of the first.
    """
    data = as_fitted(fit, data)
    tensors, _ = checked(fit.model, data)
    program, structure = Program(fit.model, tensors), fit.structure
    point = fit.params | (fit.local or {})
    drawn_sites = {} if fit.local_draws is None else (fit.draws or {}) | fit.local_draws
    sets = {name: value.flatten(0, 1) for name, value in drawn_sites.items()}

    def at(s: int) -> Params:
        """Point estimate; draws, evenly spaced, where latents of the rows were drawn."""
        return point | {name: x[s * len(x) // num_simulations] for name, x in sets.items()}

    def tables(values: Params) -> dict[str, np.ndarray]:
        return {
            name: value.double().cpu().numpy()
            for name, value in structure.as_tables(program, values).items()
        }

    draws = []
    for s in range(num_simulations):
        drawn = structure.simulate_like(fit.params, data, seed + s)
        draws.append(tables(replicate(program, at(s), seed + s) if drawn is None else drawn))
    return tables(observed_values(program, point)), draws


# ---------------------------------------------------------------- names


def dims_of(fit: FitRecord, site: str, shape: Sequence[int]) -> tuple[str, ...]:
    """Names of the dims of a site, without rows.

    A model that declares ``site_dims`` is believed; any other site gets dims of its own
    (``weights_dim_0``), because one dim name has one size in a whole data set.

    Args:
        fit: the fit.
        site: name of the site.
        shape: its shape, without rows.

    Raises:
        ValueError: if the model declares another number of dims than the site has.
    """
    declared = getattr(fit.model, "site_dims", {}).get(site)
    if declared is None:
        return tuple(f"{site}_dim_{i}" for i in range(len(shape)))
    if len(declared) != len(shape):
        raise ValueError(
            f"site_dims[{site!r}] must name {len(shape)} dims for shape {tuple(shape)}, got"
            f" {tuple(declared)}"
        )
    return tuple(declared)


def labels_of(
    fit: FitRecord, dim: str, size: int, names: Names | None = None
) -> list[str] | list[int]:
    """Labels of the entries along a dim.

    The user's names, the model's own (``entry_names``), those of labels that the fit was given, the
    item names, or 0, 1, ...; of a subset
    those of its members, as in 0*2; of the categories of all items, item after item, those of both,
    as in smoker=yes.

    Args:
        fit: the fit.
        dim: name of the dim.
        size: its size.
        names: the user's names by dim, for example ``{"latent_1": ["stroke", "loop"]}``.

    Raises:
        ValueError: if ``names`` holds another number of names than the dim has entries.
    """
    if names is not None and dim in names:
        chosen = [str(name) for name in names[dim]]
        if len(chosen) != size:
            raise ValueError(f"names[{dim!r}] must hold {size} names, got {len(chosen)}")
        return chosen
    own = getattr(fit.model, "entry_names", {}).get(dim) or _told_names(fit, dim)
    if own is not None and len(own) == size:
        return list(own)
    subsets = getattr(fit.model, "subset_dims", {}).get(dim)
    if subsets is not None:
        most = 1 + max(k for subset in subsets[1] for k in subset)
        most = len(names[subsets[0]]) if names and subsets[0] in names else most
        members = labels_of(fit, subsets[0], most, names)
        return ["*".join(str(members[k]) for k in subset) for subset in subsets[1]]
    items = list(fit.item_names)
    if dim in ("item", "item_2", "column") and len(items) == size:
        return items
    if dim == "feature" and items[-1:] == ["action"] and len(items) == size + 1:
        return items[:-1]  # of continuous states
    if dim == "item" and len(items) == size + fit.structure.num_given:
        return items[:size]
    categories = fit.structure.category_names(items)
    if dim == "category" and sum(map(len, categories.values())) == size:
        return [f"{item}={name}" for item, own in categories.items() for name in own]
    names_of = NAMED_DIMS.get(dim)
    if names_of is not None and len(entries := names_of(fit.structure, items)) == size:
        return entries
    return list(range(size))


def _told_names(fit: FitRecord, dim: str) -> list[str] | None:
    """Names of the values of a latent by the labels that the fit was given; None without."""
    dims = getattr(fit.model, "site_dims", {})
    for site, names in (fit.label_names or {}).items():
        table = (fit.labels or {}).get(site)  # (N, ..., V)
        if table is None or table.dim() != 1 + len(dims.get(site, ())):
            continue  # of bits, whose dim is not that of their values
        if dim.removeprefix("next_") == dims[site][-1]:
            return [*names, *map(str, range(len(names), table.shape[-1]))]
    return None


class Variable(NamedTuple):
    """Variable of a fit's tables: a site, or a function of its entries under users' name.

    Args:
        name: of the variable; site: that it is read from.
        dims: names of its dims; labels: of the entries along each.
        function: of the site's entries; places: along the site's last dim, None for all.
        is_increasing: whether ends of intervals of the site are ends of intervals of the variable.
    """

    name: str
    site: str
    dims: tuple[str, ...]
    labels: list[list[str] | list[int]]
    function: Callable[[Tensor], Tensor] = torch.clone
    places: tuple[int, ...] | None = None
    is_increasing: bool = True

    def taken(self, value: Tensor) -> Tensor:
        """Entries of the site that the variable is read from, with any leading dims."""
        return value if self.places is None else value[..., list(self.places)]

    def of(self, value: Tensor) -> Tensor:
        """The variable, from values of the site with any leading dims."""
        return self.function(self.taken(value))


def sites_of(fit: FitRecord, names: Names | None = None) -> dict[str, Variable]:
    """The sites as they are in the program, with the names of their entries."""
    out = {}
    for site, value in fit.params.items():
        dims = dims_of(fit, site, value.shape)
        labels = [labels_of(fit, *each, names) for each in zip(dims, value.shape, strict=True)]
        out[site] = Variable(site, site, dims, labels)
    return out


def variables_of(fit: FitRecord, names: Names | None = None) -> dict[str, list[Variable]]:
    """Named functions of each site: ``probability`` of log-odds, ``variance`` of dispersions.

    Of a site whose entries all have such names there is nothing else; where some have none, the
    variable that bears the site's name holds these.

    Args:
        fit: of any program; names: of the entries by dim.
    """
    named = named_estimates(fit.structure)
    out: dict[str, list[Variable]] = {}
    for site, whole in sites_of(fit, names).items():
        out[site] = [
            _part(whole, name, each.places)._replace(
                function=each.of, is_increasing=each.is_increasing
            )
            for name, each in named.items()
            if each.site == site
        ]
        known = [each for each in out[site] if each.is_increasing]
        if not known:
            out[site].append(whole)
        elif all(each.places is not None for each in known):
            taken = {place for each in known for place in each.places or ()}
            rest = tuple(k for k in range(len(whole.labels[-1])) if k not in taken)
            out[site] += [_part(whole, site, rest)] if rest else []
    return out


def _part(whole: Variable, name: str, places: tuple[int, ...] | None) -> Variable:
    """The entries of a site at some places, under another name."""
    if places is None:
        return whole._replace(name=name)
    labels: Any = [whole.labels[-1][place] for place in places]
    return whole._replace(
        name=name,
        dims=(*whole.dims[:-1], f"{name}_{whole.dims[-1]}"),
        labels=[*whole.labels[:-1], labels],
        places=places,
    )


def with_names(fit: FitRecord, text: str, names: Names | None = None) -> str:
    """Replace entry numbers in a text, ``predictors[1, 0]``, by names, ``mean[1, age]``.

    Sites alone, as in "12 entries of predictors, initial", get the names of their estimates.
    """

    def named(found: re.Match[str]) -> str:
        site, places = found[1], [int(place) for place in found[2].split(",")]
        shape = fit.params[site].shape if site in fit.params else ()
        if len(places) != len(shape) or any(
            place >= size for place, size in zip(places, shape, strict=True)
        ):
            return found[0]
        own = next(
            each
            for each in variables_of(fit, names)[site]
            if each.is_increasing and (each.places is None or places[-1] in each.places)
        )
        if own.places is not None:
            places[-1] = own.places.index(places[-1])
        labels = [str(known[place]) for known, place in zip(own.labels, places, strict=True)]
        return f"{own.name}[{', '.join(labels)}]"

    def renamed(found: re.Match[str]) -> str:
        known = variables_of(fit, names)
        sites = [
            ", ".join(each.name for each in known[site] if each.is_increasing)
            if site in known
            else site
            for site in found[1].split(", ")
        ]
        return f"entries of {', '.join(sites)}"

    text = re.sub(r"(\w+)\[(\d+(?:, ?\d+)*)\]", named, text)
    return re.sub(r"entries of (\w+(?:, \w+)*)", renamed, text)
