"""Tables of a fit with names: parameters for pandas and xarray, posteriors of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from inference.base.diagnostics import as_array
from inference.fitting.columns import Names, as_fitted, dims_of, labels_of, variables_of
from inference.fitting.posterior import everything_of_rows
from inference.fitting.predict import whole_numbers, without_latents
from ppl_models.data.frames import SparseFrame, as_frame, is_frame
from ppl_models.data.sequences import places_of

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from inference.fitting.record import FitRecord


def to_xarray(fit: FitRecord, names: Names | None = None) -> xr.Dataset:
    """Estimates as an ``xarray.Dataset``, one variable a site, with named dims and entries.

    Functions of sites that have names of their own stand beside them: ``mean``, ``variance``,
    ``probability``, ``rate`` (:func:`inference.base.structure.named_estimates`).

    Continuous latents of the rows that were fitted (activities) have the dim ``unit``. Draws are in
    :func:`inference.fitting.export.to_arviz`.

    Args:
        fit: of any program; of draws, their means.
        names: names of the entries by dim, for example ``{"latent_1": ["stroke", "loop"]}``.

    Raises:
        ValueError: if ``names`` or the model's ``site_dims`` do not fit the sizes.
    """
    import xarray as xr

    variables = {
        site: (dims_of(fit, site, value.shape), as_array(value))
        for site, value in fit.params.items()
    }
    for site, value in (fit.local or {}).items():
        variables[site] = (("unit", *dims_of(fit, site, value.shape[1:])), as_array(value))
    sizes = {
        dim: size
        for dims, values in variables.values()
        for dim, size in zip(dims, values.shape, strict=True)
    }
    coords = {dim: labels_of(fit, dim, size, names) for dim, size in sizes.items()}
    for site, known in variables_of(fit, names).items():
        for variable in known:
            if variable.name not in variables:
                variables[variable.name] = (
                    variable.dims,
                    as_array(variable.of(fit.params[site])),
                )
                coords |= dict(zip(variable.dims, variable.labels, strict=True))
    attributes = {
        "model": fit.model_name,
        "log_likelihood": fit.log_likelihood,
        "converged": int(fit.converged),
        "num_rows": fit.num_rows,
    }
    return xr.Dataset(variables, coords, attributes)


def frames_of(fit: FitRecord, names: Names | None = None) -> dict[str, pd.Series | pd.DataFrame]:
    """Estimates by site: a series for a vector, a frame for a matrix or more dims.

    Args, Raises: as :func:`to_xarray`.
    """
    return {
        str(site): _frame(str(site), value)
        for site, value in to_xarray(fit, names).data_vars.items()
    }


def _frame(site: str, value: xr.DataArray) -> pd.Series | pd.DataFrame:
    import pandas as pd

    if not value.dims:
        return pd.Series([value.item()], name=site)
    labels, dims = [value[dim].values for dim in value.dims], list(value.dims)
    last = pd.Index(labels[-1], name=dims[-1])
    if value.ndim == 1:
        return pd.Series(value.values, last, name=site)
    first = (
        pd.Index(labels[0], name=dims[0])
        if value.ndim == 2
        else pd.MultiIndex.from_product(labels[:-1], names=dims[:-1])
    )
    return pd.DataFrame(value.values.reshape(-1, len(last)), first, last)


def posterior_frame(fit: FitRecord, data: Any, names: Names | None = None) -> pd.DataFrame:
    """Posterior of each row as a frame with the index of ``data``.

    Of a latent of several values, ``P(group=0)``, ``P(group=1)``, ... and in ``group`` the most
    probable one; of bits ``P(skills[add])`` and in ``skills[add]`` 0 or 1, most probable jointly
    over the bits of a site; of continuous latents their estimate or posterior mean. Of sequences
    there is one line a step, in the order of a frame's lines, else under (sequence, step).

    Args:
        fit: of any program that answers row by row; data: the rows, as the fit takes them.
        names: names of the entries by dim, for example ``{"component": ["low", "high"]}``; a latent
            of several values has these, or those of the labels of the fit, as values.

    Raises:
        ValueError: if ``data`` or ``names`` do not fit the model, or rows of the program have no
            answers of their own.
    """
    import pandas as pd

    given, data = as_frame(data), as_fitted(fit, data)
    chances, values, steps = _columns(fit, data, names)
    columns: dict[str, np.ndarray] = {}
    if is_frame(given) and (row := (fit.read_as or {}).get("row")) in given:
        columns[str(row)] = given[row].to_numpy()
    for site, probabilities in chances.items():
        columns |= probabilities | values[site]
    if not chances:
        raise ValueError(f"posterior_frame: {without_latents(fit, 'latents')}")
    return _indexed(pd.DataFrame(columns), data, steps)


def latent_features(fit: FitRecord, data: Any) -> dict[str, np.ndarray]:
    """Probability and continuous columns of :func:`posterior_frame`, each (N,), by name.

    Raises:
        ValueError: as :func:`posterior_frame`.
    """
    chances, _, _ = _columns(fit, as_fitted(fit, data), None)
    columns = {
        name: column for probabilities in chances.values() for name, column in probabilities.items()
    }
    if not columns:
        raise ValueError(f"transform: {without_latents(fit, 'latents')}")
    return columns


Named = dict[str, np.ndarray]


def _columns(
    fit: FitRecord, data: Any, names: Names | None
) -> tuple[dict[str, Named], dict[str, Named], Tensor | None]:
    """Probabilities and modes by site, each (N,) by name, and the sites with steps."""
    means, modes = everything_of_rows(fit, data)
    chances: dict[str, Named] = {}
    values: dict[str, Named] = {}
    steps = None
    for site, mean in means.items():
        mode = modes.get(site)
        if mode is None and mean.dim() == 1:  # one number a row
            chances[site], values[site] = {site: as_array(mean)}, {}
            continue
        dim = dims_of(fit, site, mean.shape[1:])[-1]
        if mode is not None and mean.dim() == 3:  # sequences
            steps = mode >= 0
            mean, mode = mean[steps], mode[steps]
        if mean.dim() != 2:
            raise ValueError(
                f"posterior_frame: latents in one plate over the rows were expected, but {site!r}"
                f" has shape {tuple(mean.shape)}; see posterior_latents"
            )
        labels, columns = labels_of(fit, dim, mean.shape[1], names), as_array(mean).T
        entries = [f"{site}[{label}]" for label in labels]
        values[site] = {}
        if mode is None:
            chances[site] = dict(zip(entries, columns, strict=True))
        elif mode.dim() == 2:
            chances[site] = {
                f"P({entry})": column for entry, column in zip(entries, columns, strict=True)
            }
            values[site] = dict(zip(entries, whole_numbers(mode).T, strict=True))
        else:
            chances[site] = {
                f"P({site}={label})": column for label, column in zip(labels, columns, strict=True)
            }
            modes_of_site = whole_numbers(mode)
            values[site] = {
                site: np.asarray(labels)[modes_of_site]
                if isinstance(labels[0], str)
                else modes_of_site
            }
    return chances, values, steps


def _indexed(frame: pd.DataFrame, data: Any, steps: Tensor | None) -> pd.DataFrame:
    """Set the caller's index on a frame."""
    import pandas as pd

    has_index = is_frame(data) and hasattr(data, "index")
    if isinstance(data, SparseFrame):
        return frame.set_axis(data.row_names)
    if steps is None:
        return frame.set_axis(data.index) if has_index else frame
    if has_index:  # one line a step, and none for steps between two times of the frame
        sequence, step = places_of(data)
        line = as_array(steps.flatten().cumsum(0) - 1)[sequence * steps.shape[1] + step]
        return frame.iloc[line].set_axis(data.index)
    return frame.set_axis(
        pd.MultiIndex.from_arrays(as_array(steps.nonzero().T), names=["sequence", "step"])
    )
