"""Log-likelihoods and latents of rows at parameter draws, many draws as one batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from inference.base.structure import Structure, sampled_sites
from inference.fitting.posterior import (
    OF_ROWS,
    chunks,
    log_likelihood_rows,
    posterior_latents,
    refuse_open,
    refuse_parts,
    sums_out,
)
from inference.programs.sites import is_large

if TYPE_CHECKING:
    from inference.fitting.record import FitRecord
    from inference.programs.program import Params, Program


ELEMENTS = 2**22  # draws times rows times configurations in memory at once
MOST_LATENTS = 200  # draws that posteriors of latents are averaged over


def log_likelihood_of_draws(fit: FitRecord, draws: Mapping[str, Tensor], data: Any) -> Tensor:
    """Log-likelihood of each row under each draw, latents summed out, (D, N).

    Args:
        fit: of the model and the columns; draws: by site name, (D, ...); data: as the fit takes it.
    """
    refuse_open(fit, next(chunks(fit, data)))
    if not _batches(fit, data, len(next(iter(draws.values())))):
        return torch.stack([log_likelihood_rows(draw, data) for draw in _each(fit, draws)])
    parts = []
    for program in chunks(fit, data):
        with torch.no_grad():
            parts.append(
                torch.cat([program.log_marginal_rows(some) for some in _batches_of(program, draws)])
            )
        if len(parts) > 1:
            refuse_parts(program, {OF_ROWS: parts[-1][0]}, set())
    return torch.cat(parts, -1)


def latents_of_draws(fit: FitRecord, draws: Mapping[str, Tensor], data: Any) -> dict[str, Tensor]:
    """Posterior of the latents of each row, averaged over at most 200 draws, by site.

    Where continuous latents of the rows were drawn, their draws must be among them.
    """
    program = next(chunks(fit, data))
    if sampled_sites(fit.structure, program) and not program.names("latent"):
        return {}
    count = len(next(iter(draws.values())))
    if count > MOST_LATENTS:
        picked = torch.linspace(0, count - 1, MOST_LATENTS).round().long()
        draws = {name: value[picked] for name, value in draws.items()}
        count = MOST_LATENTS
    if (
        not _batches(fit, data, count)
        or type(fit.structure).latent_means is not Structure.latent_means
    ):
        total: dict[str, Tensor] = {}
        for draw in _each(fit, draws):
            for site, value in posterior_latents(draw, data).items():
                total[site] = total.get(site, torch.zeros(())) + value / count
        return total
    parts: dict[str, list[Tensor]] = {}
    for program in chunks(fit, data):
        outside = set(program.names("latent")) - set(program.row_latents)
        if parts:
            refuse_parts(program, {}, outside)
        sums: dict[str, Tensor] = {}
        for some in _batches_of(program, draws):
            for site, value in program.latent_means(some).items():
                sums[site] = sums.get(site, torch.zeros(())) + value.sum(0) / count
        for site, value in sums.items():
            parts.setdefault(site, []).append(value)
    return {
        site: values[0] if site in outside else torch.cat(values) for site, values in parts.items()
    }


def _batches(fit: FitRecord, data: Any, num_draws: int) -> bool:
    """Tell whether draws run as one batch: several, of latents summed out in one plate."""
    program = next(chunks(fit, data))
    drawn = set(sampled_sites(fit.structure, program))
    summed = (
        not is_large(program.sites)
        if drawn
        else sums_out(fit, program) and not is_large(program.sites)
    )
    return (
        (num_draws > 1 or bool(drawn))
        and summed
        and not fit.structure.local_sites
        and len(program.names("latent")) > 0
    )


def _batches_of(program: Program, draws: Mapping[str, Tensor]) -> Iterator[Params]:
    values = max([1, *(site.num_values or 1 for site in program.sites)])
    rows = max(
        [1, *(site.shape[0] for site in program.sites if site.kind == "observed" and site.shape)]
    )
    size = max(1, ELEMENTS // (values * rows))
    count = len(next(iter(draws.values())))
    for start in range(0, count, size):
        yield {name: value[start : start + size] for name, value in draws.items()}


def _each(fit: FitRecord, draws: Mapping[str, Tensor]) -> Iterator[FitRecord]:
    for d in range(len(next(iter(draws.values())))):
        yield dataclasses.replace(fit, params={name: value[d] for name, value in draws.items()})
