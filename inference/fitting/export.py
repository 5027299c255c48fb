"""Export of a fit as ArviZ's InferenceData (0.23) or DataTree (1), and netCDF.

With :mod:`inference.base.diagnostics` the only file that knows ArviZ. Every group is an xarray data
set of its own, so a dim name has one size a group.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from inference.base.checkpoint import replacing
from inference.base.diagnostics import as_array, has_datatree, load_arviz
from inference.base.structure import sampled_sites
from inference.fitting.columns import (
    Names,
    as_fitted,
    as_matrix,
    can_simulate,
    count_rows,
    dims_of,
    labels_of,
    observed_sites,
    variables_of,
)
from inference.fitting.draws import latents_of_draws, log_likelihood_of_draws
from inference.fitting.posterior import chunks, simulate_rows
from inference.programs.arguments import Call
from inference.programs.global_state import OTHER_STREAM
from inference.programs.posterior_predictive import observed_values, replicate
from inference.programs.program import Params, Program
from ppl_models.data.frames import is_frame
from ppl_models.data.tables import as_tensors, checks_data, first_tensor
from ppl_models.parts.validation import Seed, as_seed, check_size

if TYPE_CHECKING:
    from arviz import InferenceData
    from xarray import DataTree

    from inference.fitting.record import FitRecord

    ArvizData = InferenceData | DataTree  # of ArviZ 0.23, and of 1

POINT_NOTE = (
    "point estimate: one draw, not a posterior sample; intervals, R-hat and ESS are undefined"
)
DRAWS_NOTE = "posterior draws"
LOO_NOTE = (
    "az.loo and az.compare need draws and rows: fit.to_arviz(data) of a fit by NUTS, Laplace or"
    " SVI (az.loo takes the draws of the last two for the posterior; inference.loo.loo weighs"
    " them); of a point estimate, inference.loo.cross_validate(fit, data)"
)
ARVIZ_NAMES = {"num_steps": "n_steps"}  # of sample_stats
Variables = dict[str, tuple[tuple[str, ...], np.ndarray]]


def to_arviz(
    fit: FitRecord,
    data: Any = None,
    num_predictive: int | None = None,
    seed: Seed = 0,
    names: Names | None = None,
    num_prior: int = 0,
) -> ArvizData:
    r"""ArviZ object of a fit: ``InferenceData`` (ArviZ 0.23) or ``DataTree`` (ArviZ 1).

    Groups:

    - ``posterior`` (chain, draw, ...): the parameters, and functions of them that users know by
      other names (``mean``, ``variance``, ``probability``, ``rate`` of components and states); a
      point fit is one chain of one draw, and says so in the group's attributes ``point_estimate``
      (1 or 0) and ``note``.
    - ``log_likelihood`` (chain, draw, unit): :math:`\log p(x_i \mid \theta)` with the latents
      summed out. ``az.loo`` and ``az.compare`` read it, so they need ``data`` here, and draws; a
      point fit has no such group: take :func:`inference.loo.cross_validate`, or
      :func:`inference.compare`, which does.
    - ``log_prior`` (chain, draw): :math:`\log p(\theta)` of all parameters together, which
      ``az.psense`` reads.
    - ``observed_data`` (unit, item), NaN where missing.
    - ``posterior_predictive`` (chain, draw, unit, item): data sets drawn from the fit, of as many
      rows.
    - ``latent_posterior`` (unit, latent): P(latent = 1 | row), averaged over the draws.
    - ``local_posterior`` (chain, draw, unit, ...): draws of the continuous latents of the rows,
      where the engine drew them. There is then no ``log_likelihood``: the likelihood of a row is an
      integral over them.
    - ``sample_stats`` (chain, draw): what the engine says of its draws, under ArviZ's names:
      ``diverging``, ``energy``, ``tree_depth``, ``n_steps``, ``acceptance_rate``, ``step_size``,
      ``lp``, and whether the latents were renamed (``relabelled``).
    - ``prior``, ``prior_predictive``: with ``num_prior``, draws from the prior and data sets from
      them.
    - ``constant_data``: the given graph of each confirmatory layer, (child, latent).

    All but ``posterior`` and ``posterior_predictive`` need ``data``. Dims are named by the model's
    ``site_dims``, else by the variable (``weights_dim_0``); coords by the columns and the index of
    the data frame, and by ``names``.

    Args:
        fit: the fit.
        data: (N, J), the rows the groups speak of; or what the program takes.
        num_predictive: simulated data sets a chain, 0 for none; by default 1 for a point fit, else
            at most 50, from evenly spaced draws.
        seed: seed of the first simulated data set.
        names: names of the entries by dim, for example ``{"latent_1": ["stroke", "loop"]}``.
        num_prior: draws from the prior, 0 for none.

    Raises:
        ValueError: if ``data`` does not fit the model, ``num_predictive`` or ``num_prior`` is
            negative, or ``names`` or the model's ``site_dims`` do not fit the sizes.
    """
    seed = as_seed("to_arviz", seed)
    import xarray as xr

    if num_predictive is not None:
        check_size("to_arviz", "num_predictive", num_predictive, least=0)
    check_size("to_arviz", "num_prior", num_prior, least=0)
    data = as_fitted(fit, data)
    point = fit.draws is None
    draws = (
        {name: value[None, None] for name, value in fit.params.items()}
        if fit.draws is None
        else fit.draws
    )
    if not draws:
        raise ValueError(
            f"to_arviz: a fit with parameters was expected, and {fit.model_name} has none:"
            " posterior_latents(data) has the posterior of its latents"
        )
    num_chains, num_draws = next(iter(draws.values())).shape[:2]
    groups: dict[str, Variables] = {"posterior": {}}
    for site, value in draws.items():
        groups["posterior"][site] = (
            ("chain", "draw", *dims_of(fit, site, value.shape[2:])),
            as_array(value),
        )
    partial_labels: dict[str, Any] = {}
    for site, known in variables_of(fit, names).items():
        for variable in known:
            if variable.name not in draws:
                groups["posterior"][variable.name] = (
                    ("chain", "draw", *variable.dims),
                    as_array(variable.of(draws[site])),
                )
                partial_labels |= {
                    dim: labels
                    for dim, labels in zip(variable.dims, variable.labels, strict=True)
                    if dim.startswith(f"{variable.name}_")
                }
    if data is not None:
        is_open = bool(sampled_sites(fit.structure, next(chunks(fit, data))))
        groups["log_likelihood"] = {} if is_open or point else _log_likelihood(fit, data, draws)
        groups["log_prior"] = _log_prior(fit, data, draws)
        groups["observed_data"] = _observed(fit, data)
        groups["constant_data"] = _graphs(fit)
        groups["latent_posterior"] = (
            _latents(fit, data, draws | (fit.local_draws or {}))
            if not is_open or fit.local_draws
            else {}
        )
    if fit.local_draws is not None:
        groups["local_posterior"] = {
            site: _local(fit, site, as_array(value)) for site, value in fit.local_draws.items()
        }
    if fit.sample_stats is not None and not point:
        groups["sample_stats"] = {
            ARVIZ_NAMES.get(name, name): (("chain", "draw"), as_array(value))
            for name, value in fit.sample_stats.items()
        }
    if num_prior:
        groups["prior"], groups["prior_predictive"] = _prior(fit, data, num_prior, seed)
    if num_predictive is None:
        num_predictive = 1 if point else min(50, num_draws)
    picked = np.arange(num_predictive)
    if not point:
        picked = np.unique(np.linspace(0, num_draws - 1, num_predictive).round().astype(int))
    if len(picked) and can_simulate(fit, data):
        groups["posterior_predictive"] = _predictive(fit, data, draws, picked, seed)

    attributes = _attributes(fit, num_chains, num_draws)
    datasets = {}
    for group, variables in groups.items():
        sizes = {
            dim: n
            for dims, values in variables.values()
            for dim, n in zip(dims, values.shape, strict=True)
        }
        coords = {
            dim: partial_labels[dim]
            if dim in partial_labels
            else _coord(fit, dim, size, data, names)
            for dim, size in sizes.items()
        }
        if group == "posterior_predictive" and not point:
            coords["draw"] = picked
        if variables:
            datasets[group] = xr.Dataset(variables, coords, attributes)
    return _assemble(datasets)


def rhat(idata: Any) -> Any:
    """ArviZ's R-hat of every parameter.

    Args:
        idata: what :func:`to_arviz` returned.

    Raises:
        ValueError: for a point fit, which is one draw and has no R-hat.
    """
    if _is_point(idata):
        raise ValueError(
            "rhat: posterior draws of several chains were expected, got a point fit, which is one"
            " draw; look at fit.converged, fit.trace and the spread of fit.restarts"
            " (inference.plots.fit.plot_restarts) instead, or fit with an engine that draws"
        )
    return load_arviz().rhat(idata)


def summary(idata: Any) -> Any:
    """Summary of parameters as a frame: ArviZ's of draws, or values of a point fit.

    Args:
        idata: what :func:`to_arviz` returned.
    """
    if not _is_point(idata):
        with np.errstate(invalid="ignore", divide="ignore"):  # entries that never change
            return load_arviz().summary(idata)
    import pandas as pd

    lines: dict[str, float] = {}
    for name, values in idata["posterior"].data_vars.items():
        entry = values.isel(chain=0, draw=0)
        labels = [entry[dim].values.tolist() for dim in entry.dims]
        for label, value in zip(
            itertools.product(*labels), entry.values.ravel().tolist(), strict=True
        ):
            lines[f"{name}[{', '.join(map(str, label))}]" if label else str(name)] = value
    return pd.DataFrame({"value": lines})


def save_netcdf(idata: Any, path: str | Path) -> Path:
    """Write an ArviZ object as a netCDF-4 file, replacing a file of that name.

    Args:
        idata: what :func:`to_arviz` returned.
        path: the file.

    Raises:
        ValueError: if ``path`` is a folder, or lies in none.
        OSError: where the disk is full, or does not take the file; the old one is as it was.
    """
    file = Path(path)
    if file.is_dir() or not file.parent.is_dir():
        raise ValueError(
            f"save_netcdf: a file in an existing folder was expected, got {str(file)!r}"
        )
    with replacing(file) as partial:
        idata.to_netcdf(str(partial), engine="h5netcdf")
    return file


def load_netcdf(path: str | Path) -> Any:
    """Read what :func:`save_netcdf` wrote, into memory; the file is closed again.

    Args:
        path: the file.

    Raises:
        ValueError: if there is no such file, or it is not netCDF-4.
    """
    import h5py
    import xarray as xr

    file = Path(path)
    if not file.is_file():
        raise ValueError(f"load_netcdf: no file {str(file)!r}")
    try:
        with h5py.File(
            str(file), "r"
        ) as handle:  # netCDF-4 is HDF5, whose groups are the data sets
            groups = [name for name, part in handle.items() if isinstance(part, h5py.Group)]
    except Exception as error:  # of damaged files h5py raises all there is
        raise ValueError(f"load_netcdf: {str(file)!r} is not a netCDF-4 file") from error
    try:
        return _assemble(
            {group: xr.load_dataset(file, group=group, engine="h5netcdf") for group in groups}
        )
    except Exception as error:
        raise ValueError(
            f"load_netcdf: {str(file)!r} is damaged: {' '.join(str(error).split())[:200]}"
        ) from error


# -------------------------------------------------------------------- groups


def _log_likelihood(fit: FitRecord, data: Any, draws: Mapping[str, Tensor]) -> Variables:
    num_chains, num_draws = next(iter(draws.values())).shape[:2]
    values = as_array(log_likelihood_of_draws(fit, _joined(draws), data))  # (chains * draws, N)
    if values.ndim == 1:  # rows in no plate, of which none can be left out
        return {}
    observed = observed_sites(fit, data)
    name = observed[0] if len(observed) == 1 else "log_likelihood"
    dims = ("unit", *(f"log_likelihood_dim_{i}" for i in range(1, values.ndim - 1)))[
        : values.ndim - 1
    ]
    return {
        name: (("chain", "draw", *dims), values.reshape(num_chains, num_draws, *values.shape[1:]))
    }


def _log_prior(fit: FitRecord, data: Any, draws: Mapping[str, Tensor]) -> Variables:
    shape = next(iter(draws.values())).shape[:2]
    with torch.no_grad():
        values = next(chunks(fit, data)).log_prior(_joined(draws))
    return {"log_prior": (("chain", "draw"), as_array(values).reshape(shape))}


def _local(fit: FitRecord, site: str, values: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    dims, _ = _by_unit(fit, site, values[0, 0], fit.num_rows)
    return ("chain", "draw", *dims), values


def _joined(draws: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Join all chains one after the other, (chains * draws, ...)."""
    return {name: value.reshape(-1, *value.shape[2:]) for name, value in draws.items()}


def _observed(fit: FitRecord, data: Any) -> Variables:
    if isinstance(fit.model, Call):
        values_of = observed_values(next(chunks(fit, data)), fit.params | (fit.local or {}))
        return {
            site: _by_unit(fit, site, as_array(value), fit.num_rows)
            for site, value in values_of.items()
        }
    if isinstance(data, Mapping):
        num_rows = len(first_tensor(data))  # what is not as long is no column of the rows
        return {
            str(name): _by_unit(fit, str(name), as_array(value), num_rows)
            for name, value in data.items()
        }
    if not checks_data(fit.model) and not is_frame(data):
        data = as_tensors(data)
    observed = observed_sites(fit, data)
    if isinstance(data, Tensor) and not checks_data(fit.model):
        values_of = observed_values(next(chunks(fit, data)), fit.params | (fit.local or {}))
        if (
            len(values_of) == 1 and next(iter(values_of.values())).shape != data.shape
        ):  # the table holds covariates too
            return {
                site: _by_unit(fit, site, as_array(value), fit.num_rows)
                for site, value in values_of.items()
            }
    values = (
        as_matrix(fit, data)
        if checks_data(fit.model) or not isinstance(data, Tensor)
        else as_array(data)
    )
    name = observed[0] if len(observed) == 1 else "data"
    return {name: _by_unit(fit, name, values, len(values))}


def _latents(fit: FitRecord, data: Any, draws: Mapping[str, Tensor]) -> Variables:
    means = latents_of_draws(fit, _joined(draws), data)
    program = next(chunks(fit, data))
    outside = set(program.names("latent")) - set(program.row_latents)
    return {
        site: _by_unit(fit, site, as_array(value), -1 if site in outside else len(value))
        for site, value in means.items()
    }


def _prior(fit: FitRecord, data: Any, num_draws: int, seed: int) -> tuple[Variables, Variables]:
    """Draws of the parameters from their prior, and a data set from each."""
    stand_in = fit.structure.stand_in()
    rows = (None, 2) if stand_in is None else (stand_in,)
    if data is None and isinstance(fit.model, Call):
        raise ValueError(
            f"to_arviz: num_prior of {fit.model_name}, a program of several arguments, needs the"
            " data, to_arviz(data, num_prior=...)"
        )
    program = Program(fit.model, *rows) if data is None else next(chunks(fit, data))
    program.refuse_flat("to_arviz: num_prior")
    drawn = program.draw_prior(num_draws, seed ^ OTHER_STREAM)  # not the numbers of the rows
    prior = {
        name: (("chain", "draw", *dims_of(fit, name, value.shape[1:])), as_array(value)[None])
        for name, value in drawn.items()
    }
    parts: dict[str, list[np.ndarray]] = {site: [] for site in observed_sites(fit, data)}
    is_own = data is not None and not checks_data(fit.model)
    for d in range(num_draws if can_simulate(fit, data if is_own else None) else 0):
        source = dataclasses.replace(
            fit, params={name: value[d] for name, value in drawn.items()}, local=None
        )
        simulated = (
            replicate(program, source.params, seed + d)
            if is_own
            else simulate_rows(source, fit.num_rows, seed=seed + d)
        )
        for site, kept in parts.items():
            kept.append(as_array(simulated[site]))
    predictive: Variables = {}
    for site, values in parts.items():
        if values:
            dims, _ = _by_unit(fit, site, values[0], fit.num_rows)
            predictive[site] = (("chain", "draw", *dims), np.stack(values)[None])
    return prior, predictive


def _predictive(
    fit: FitRecord, data: Any, draws: Mapping[str, Tensor], picked: np.ndarray, seed: int
) -> Variables:
    num_chains = next(iter(draws.values())).shape[0]
    num_rows = (
        fit.num_rows if data is None else count_rows(fit, data)
    )  # sequences, where lines are their steps
    observed = observed_sites(fit, data)
    kept: dict[str, list[np.ndarray]] = {site: [] for site in observed}
    own = None if data is None or checks_data(fit.model) else next(chunks(fit, data))
    for i, (chain, draw) in enumerate(itertools.product(range(num_chains), picked)):
        source = fit if fit.draws is None else _at(fit, draws, chain, int(draw))
        if own is not None:
            along: Params | None = replicate(own, source.params | (source.local or {}), seed + i)
        else:
            along = (
                None if data is None else fit.structure.simulate_like(source.params, data, seed + i)
            )
        simulated = simulate_rows(source, num_rows, seed=seed + i) if along is None else along
        for site in observed:
            values = as_array(simulated[site])
            kept[site].append(
                np.where(np.isinf(values), np.nan, values) if values.dtype.kind == "f" else values
            )  # after the end of a sequence
    out: Variables = {}
    for site, parts in kept.items():
        dims, _ = _by_unit(fit, site, parts[0], num_rows)
        out[site] = (
            ("chain", "draw", *dims),
            np.stack(parts).reshape(num_chains, len(picked), *parts[0].shape),
        )
    return out


def _graphs(fit: FitRecord) -> Variables:
    """Given graphs, layer by layer; nothing where all loadings are free."""
    out: Variables = {}
    for layer in fit.structure.layers:
        if layer.graph is not None:
            dims = dims_of(fit, layer.loadings, layer.graph.shape)
            out[f"graph_of_{layer.loadings}"] = (dims, as_array(layer.graph).astype(np.int8))
    return out


def _by_unit(
    fit: FitRecord, site: str, values: np.ndarray, num_rows: int
) -> tuple[tuple[str, ...], np.ndarray]:
    """Dims of something with one entry a row."""
    if values.ndim == 0 or len(values) != num_rows:
        return dims_of(fit, site, values.shape), values
    return ("unit", *dims_of(fit, site, values.shape[1:])), values


# -------------------------------------------------------------------- pieces


def _at(fit: FitRecord, draws: Mapping[str, Tensor], chain: int, draw: int) -> FitRecord:
    """Fit with one draw as its parameters, and as the continuous latents of its rows."""
    params, local = (
        {name: value[chain, draw] for name, value in drawn.items()}
        for drawn in (draws, fit.local_draws or {})
    )
    return dataclasses.replace(fit, params=params, local=local or fit.local)


def _coord(fit: FitRecord, dim: str, size: int, data: Any, names: Names | None) -> np.ndarray:
    index = getattr(data, "index", None) if dim == "unit" and hasattr(data, "columns") else None
    if (
        index is not None and fit.structure.row_columns
    ):  # units are sequences, and the lines of the frame their steps
        named = list(dict.fromkeys(data["sequence"].tolist())) if "sequence" in data.columns else []
        return np.asarray([str(name) for name in named] if len(named) == size else range(size))
    if index is not None and index.dtype.kind in "iu":
        return np.asarray(index)
    labels = (
        [str(unit) for unit in index] if index is not None else labels_of(fit, dim, size, names)
    )
    return np.asarray(labels)


def _attributes(fit: FitRecord, num_chains: int, num_draws: int) -> dict[str, str | int | float]:
    try:
        version = metadata.version("ppl-models")
    except metadata.PackageNotFoundError:  # run from a source tree
        version = "unknown"
    return {
        "inference_library": "ppl-models",
        "inference_library_version": version,
        "model": fit.model_name,
        "method": repr(fit.method),
        "point_estimate": int(fit.draws is None),  # netCDF has no booleans
        "note": POINT_NOTE if fit.draws is None else DRAWS_NOTE,
        "num_chains": num_chains,
        "num_draws": num_draws,
        "objective_name": fit.objective_name,
        "objective": fit.objective,
        "log_likelihood_at_estimate": (
            fit.log_likelihood
        ),  # under "log_likelihood" ArviZ would take it for that of the rows
        "log_likelihood_relative_to": (
            fit.structure.relative_to or "nothing: densities and probabilities of the data"
        ),
        "leave_one_out": LOO_NOTE,
        "converged": int(fit.converged),
        "seed": fit.seed,
    }


def _assemble(datasets: dict[str, Any]) -> ArvizData:
    if has_datatree():
        import xarray as xr

        return xr.DataTree.from_dict(datasets)
    idata: InferenceData = load_arviz().InferenceData(**datasets)
    return idata


def _is_point(idata: Any) -> bool:
    posterior = idata["posterior"]
    is_single = posterior.sizes["chain"] * posterior.sizes["draw"] == 1
    return bool(posterior.attrs.get("point_estimate", 0)) or is_single
