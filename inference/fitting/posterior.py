"""Posterior of rows under a fit: latents, log-likelihoods, reconstructions, draws."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inference.base.checkpoint import usable_path
from inference.base.streaming.row_blocks import RowBlocks
from inference.base.structure import (
    can_sum_out,
    conditional_log_likelihoods,
    marginal_rows,
    sampled_sites,
)
from inference.engines import gibbs_estimates
from inference.fitting.columns import can_simulate, checked_as_fitted, count_rows
from inference.fitting.problem import in_blocks
from inference.fitting.record import FitRecord
from inference.programs.arguments import Call, program_name
from inference.programs.global_state import OTHER_STREAM
from inference.programs.program import Params, Program, simulate
from inference.programs.sites import is_large
from ppl_models.data.tables import checks_data, first_row, first_tensor, map_tensors
from ppl_models.parts.validation import Seed, as_seed, check_size

CHUNK_ELEMENTS = 2**22
OF_ROWS = "log_likelihood"


def chunks(fit: FitRecord, data: Any) -> Iterator[Program]:
    """Iterate over the program on consecutive chunks of rows, or block after block."""
    data = in_blocks(fit.model, data)
    for part in data if isinstance(data, RowBlocks) else [data]:
        yield from _chunks(fit, part)


def _chunks(fit: FitRecord, data: Any) -> Iterator[Program]:
    tensors, _ = checked_as_fitted(fit, data, takes_sparse=True)
    if not checks_data(fit.model):
        yield Program(fit.model, tensors)
        return
    like = next(iter(fit.params.values()))  # the estimate's dtype and device
    tensors = map_tensors(lambda x: x.to(like if x.is_floating_point() else like.device), tensors)
    first = first_tensor(tensors)
    program = Program(fit.model, first_row(tensors))
    values = 1 if is_large(program.sites) else max(site.num_values or 1 for site in program.sites)
    rows = max(1, CHUNK_ELEMENTS // max(math.prod(first.shape[1:]), values))
    for start in range(0, len(first), rows):
        chunk = slice(start, start + rows)
        yield program.with_data(map_tensors(operator.itemgetter(chunk), tensors))


@torch.enable_grad()  # also where the caller has switched gradients off
def _by_row(
    fit: FitRecord,
    data: Any,
    ask: Callable[[FitRecord, Program, Params], dict[str, Tensor]],
    written: Written | None = None,
) -> dict[str, Tensor]:
    structure = fit.structure
    parts: list[dict[str, Tensor]] = []
    once: dict[str, Tensor] = {}  # what is said of no row, and by every part of the rows alike
    names: list[str] = []
    for program in chunks(fit, data):
        refuse_open(fit, program)
        outside = set(program.names("latent")) - set(program.row_latents)
        local = structure.solve_local(fit.params, program.args[0]) if structure.local_sites else {}
        answer = ask(fit, program, fit.params | local)
        if names:
            refuse_parts(program, answer, outside)
        names = list(answer)
        once = {name: answer.pop(name) for name in outside & answer.keys()}
        if written is None:
            parts.append(answer)
        else:
            written.take_in(answer)
    if written is not None:
        once |= written.tensors()
    else:
        once |= (
            parts[0]
            if len(parts) == 1
            else {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
        )
    return {name: once[name] for name in names}


def refuse_parts(program: Program, found: dict[str, Tensor], outside: set[str]) -> None:
    """Refuse rows in blocks of a program whose rows share a latent.

    Args:
        program: with one of the blocks; found: its answer.
        outside: latents of the program that stand in no plate over rows.

    Raises:
        ValueError: naming the latent.
    """
    shared = outside - program.latent_prior.apart
    if shared or any(value.dim() == 0 for value in found.values()):
        name = (
            f"the latent {min(shared)!r}, which stands outside the plate over rows, depends"
            if shared
            else "the answer depends"
        )
        raise ValueError(f"RowBlocks: {name} on all rows together: give the rows in memory")


def refuse_open(fit: FitRecord, program: Program) -> None:
    """Refuse questions that need continuous latents of the rows integrated out.

    Raises:
        ValueError: naming the site.
    """
    for name in sampled_sites(fit.structure, program):
        raise ValueError(
            f"the answer for a row needs {name!r} integrated, a continuous latent of the rows that"
            f" this library only draws: fit.local[{name!r}] holds its posterior means for the rows"
            f" of the fit, fit.local_draws[{name!r}] its draws, and to_arviz(data) both with the"
            " discrete latents"
        )


def posterior_latents(
    fit: FitRecord, data: Any, out: str | Path | None = None
) -> dict[str, Tensor]:
    """Posterior P(latent = 1 | row), (N, K) by site of bits, or (N, values) of one latent.

    Of a latent outside the plates over rows, the probability of each value in the shape of its
    site.

    Given the activities, where the model has such local sites: those of the rows in ``data`` are
    solved for. Where the configurations are too many to sum over, the mean of 16 chains of Gibbs
    sweeps: :func:`inference.engines.gibbs_estimates.posterior_means`.

    Of a fit with draws it is that at ``fit.params``, their means, which may be surer than the mean
    over draws; :func:`inference.fitting.export.to_arviz` has the latter.

    Args:
        data: the rows, or :class:`~inference.RowBlocks`, of which one block
            is held at a time.
        out: a folder, in which ``<site>.npy`` is written of each latent site; the tensors are then
            maps of these files. None for memory.

    Raises:
        ValueError: if ``data`` does not fit the model.
    """
    return _by_row(
        fit,
        data,
        _latent_means,
        (
            None
            if out is None
            else Written(usable_path("out", out, is_folder=True), num_rows_of(fit, data))
        ),
    )


def sums_out(fit: FitRecord, program: Program) -> bool:
    """Tell whether the latents can be summed out: few values, none continuous."""
    structure = fit.structure
    settled = {*structure.local_sites, *structure.integrated_sites}
    return can_sum_out(structure, program) and set(program.names("local")) <= settled


def _latent_means(fit: FitRecord, program: Program, params: Params) -> dict[str, Tensor]:
    if sums_out(fit, program):
        return fit.structure.latent_means(program, params)
    generator = torch.Generator().manual_seed(fit.seed)
    batch = {name: value.unsqueeze(0) for name, value in params.items()}
    means = gibbs_estimates.posterior_means(fit.structure.gibbs(program), batch, generator)
    return {name: value[0].mT for name, value in means.items()}


def decode_latents(fit: FitRecord, data: Any) -> dict[str, Tensor]:
    """Most probable values of the latents, (N, K) by site.

    Of a user's program jointly over all its latents, and of chains: the path of Viterbi (1967,
    doi:10.1109/TIT.1967.1054010), which means nothing behind the end of a sequence.
    Of other families, and beside continuous latents that are integrated, each site by itself,
    jointly over the entries of a layer.

    Given the activities, where the model has such local sites: those of the rows in ``data`` are
    solved for. Where the configurations are too many to sum over, entry by entry.
    """

    def modes(fit: FitRecord, program: Program, params: Params) -> dict[str, Tensor]:
        return _latent_modes(
            fit,
            program,
            params,
            {} if sums_out(fit, program) else _latent_means(fit, program, params),
        )

    return _by_row(fit, data, modes)


def _latent_modes(
    fit: FitRecord, program: Program, params: Params, means: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Most probable values, from posterior means where configurations are too many."""
    if sums_out(fit, program):
        return fit.structure.latent_modes(program, params)
    return {name: (means[name] > 0.5).to(means[name]) for name in program.names("latent")}


def everything_of_rows(fit: FitRecord, data: Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Posterior means and modes of the latents of the rows in one pass."""

    def both(fit: FitRecord, program: Program, params: Params) -> dict[str, Tensor]:
        means = _latent_means(fit, program, params)
        modes = _latent_modes(fit, program, params, means)
        for name in set(program.names("latent")) - set(program.row_latents):
            del means[name], modes[name]
        local = {name: params[name] for name in fit.structure.local_sites if name in params}
        return {f"mean {name}": value for name, value in (means | local).items()} | {
            f"mode {name}": value for name, value in modes.items()
        }

    parts = _by_row(fit, data, both)
    means, modes = (
        {name[5:]: value for name, value in parts.items() if name.startswith(kind)}
        for kind in ("mean ", "mode ")
    )
    return means, modes


def log_likelihood_rows(fit: FitRecord, data: Any, out: str | Path | None = None) -> Tensor:
    """Log-likelihood of each row, latents summed out, (N,); () without a plate over rows.

    Given the activities, where the model has such local sites: those of the rows in ``data`` are
    solved for. Where the configurations are too many to sum over, an estimate of it by annealed
    importance sampling: :func:`inference.engines.gibbs_estimates.log_likelihood_rows`.

    Args:
        data: as :func:`posterior_latents`.
        out: a folder, in which ``log_likelihood.npy`` is written; None for memory.
    """

    def rows(fit: FitRecord, program: Program, params: Params) -> dict[str, Tensor]:
        structure = fit.structure
        if structure.local_sites:
            return {OF_ROWS: conditional_log_likelihoods(structure, params, program.args[0])}
        if sums_out(fit, program):
            return {OF_ROWS: marginal_rows(structure, program, params)}
        generator = torch.Generator().manual_seed(fit.seed)
        batch = {name: value.unsqueeze(0) for name, value in params.items()}
        gibbs = fit.structure.gibbs(program)
        return {OF_ROWS: gibbs_estimates.log_likelihood_rows(gibbs, batch, generator).rows[0]}

    written = (
        None
        if out is None
        else Written(usable_path("out", out, is_folder=True), num_rows_of(fit, data))
    )
    return _by_row(fit, data, rows, written)[OF_ROWS]


@torch.enable_grad()
def reconstruct(fit: FitRecord, data: Any) -> Tensor:
    """Expected entries given the row's latents, (N, J); the modal code of categories.

    Raises:
        ValueError: for a model of which such expectations are not known.
    """
    out = []
    for program in chunks(fit, data):
        refuse_open(fit, program)
        expected = fit.structure.expected_rows(program, fit.params)
        if expected is None and (mixture := program.as_mixture(fit.params)) is not None:
            weights = program.latent_marginals(fit.params)[mixture.latent]  # (n, C)
            expected = weights @ mixture.response.mean.reshape(weights.shape[1], -1)
            given = program.args[0][
                ..., expected.shape[-1] :
            ]  # covariates stand behind the items, as they are
            expected = torch.cat([expected, given.to(expected)], -1)
        if expected is None:
            is_own, drawn = checks_data(fit.model), "to_arviz(data, num_predictive=100)"
            raise ValueError(
                "reconstruct: what to expect of a row is known for mixtures, hidden Markov models,"
                " models of binary latents over independent items, factorizations and sparse"
                " coding, and not for"
                f" {fit.model_name}; {'fit.simulate(num_rows)' if is_own else drawn} draws whole"
                " rows, whose mean is an expectation"
            )
        out.append(expected.detach())
    return torch.cat(out)


def simulate_rows(fit: FitRecord, num_rows: int, seed: Seed = 0) -> dict[str, Tensor]:
    """Rows drawn from the fitted program: latents and items, (num_rows, ...) by site.

    Activities and the like are those of the fit where the number of rows is the same, else
    resampled from them.
    """
    seed = as_seed("simulate", seed)
    check_size("simulate", "num_rows", num_rows)
    num_rows = int(num_rows)  # of NumPy too
    if not (checks_data(fit.model) or can_simulate(fit)):
        raise ValueError(
            "simulate: a program that takes (data, num_rows), and draws that many rows where data"
            f" is None, was expected, and {program_name(fit.model)} is none:"
            " to_arviz(data, num_predictive=100) draws data like those given"
        )
    local = {}
    if fit.local:
        num_known = len(next(iter(fit.local.values())))
        other = torch.Generator().manual_seed(seed ^ OTHER_STREAM)  # not the numbers of the items
        picked = torch.randint(num_known, (num_rows,), generator=other)
        picked = torch.arange(num_known) if num_rows == num_known else picked
        local = {name: value[picked] for name, value in fit.local.items()}
    try:
        return simulate(fit.model, fit.params | local, seed, None, num_rows)
    except ValueError as error:  # to which Pyro appends the shapes of its trace
        raise ValueError(str(error).partition("\nTrace Shapes")[0]) from error


def num_rows_of(fit: FitRecord, data: Any) -> int:
    """Number of rows of data.

    Raises:
        ValueError: for what has no length.
    """
    if hasattr(data, "count_rows"):
        return int(data.count_rows())
    if isinstance(fit.model, Call):
        return len(data) if isinstance(data, RowBlocks) else count_rows(fit, data)
    if not hasattr(data, "__len__"):
        raise ValueError(f"out: rows with a length were expected, got {type(data).__name__}")
    return len(data)


class Written:
    """Row tables on disk: ``.npy`` files of a folder, filled block by block.

    Args:
        folder: made if it is not there; files of the same names in it are replaced.
        num_rows: of each table.
    """

    def __init__(self, folder: Path, num_rows: int) -> None:
        self.folder, self.num_rows = folder, num_rows
        self._arrays: dict[str, np.memmap] = {}
        self._done = 0

    def take_in(self, found: dict[str, Tensor]) -> None:
        """Write the next rows, by table.

        Raises:
            ValueError: for an answer that is not one line a row, or no answer.
        """
        if not found:
            raise ValueError(
                "out: a model whose rows have latents to write was expected, and this one has none;"
                " what a fit estimates for each of its rows is fit.local"
            )
        for name, value in found.items():
            array = value.detach().cpu().numpy()
            if name not in self._arrays:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._arrays[name] = np.lib.format.open_memmap(
                    self.folder / f"{name}.npy",
                    "w+",
                    array.dtype,
                    (self.num_rows, *array.shape[1:]),
                )
            whole = self._arrays[name]
            if (
                array.ndim == 0
                or array.shape[1:] != whole.shape[1:]
                or self._done + len(array) > self.num_rows
            ):
                raise ValueError(
                    f"out: one line a row of shape {whole.shape[1:]} was expected of {name!r}, got"
                    f" shape {array.shape}"
                )
            whole[self._done : self._done + len(array)] = array
        self._done += len(next(iter(found.values())))

    def tensors(self) -> dict[str, Tensor]:
        """Tables as memory maps of their files."""
        for array in self._arrays.values():
            array.flush()
        return {name: torch.from_numpy(np.asarray(array)) for name, array in self._arrays.items()}
