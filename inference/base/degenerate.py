"""Unused and indistinguishable values of a latent."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from inference.programs.program import Params, Program
from inference.programs.sites import MAX_SUMMED, is_large

COPIES = 1e-3  # symmetrised Kullback-Leibler divergence below which two components are one


def shared_values(
    probabilities: Tensor, what: str, first: int = 0, weights: Tensor | None = None
) -> tuple[str, ...]:
    """Unused or indistinguishable values of a latent, in words.

    Args:
        probabilities: posterior of each value, (N, K).
        what: a value is called, such as "component".
        first: number of the first value.
        weights: how often each row counts, (N,); None for once.
    """
    return shared_words(value_sums(probabilities, weights), what, first)


def value_sums(probabilities: Tensor, weights: Tensor | None = None) -> Tensor:
    """Sums over rows for :func:`shared_words`: n_k, and r_nk log r_nl, ([R], K, 1 + K).

    Args:
        probabilities: ([R], N, K); weights: as :func:`shared_values`.
    """
    r = probabilities.detach().double().cpu()
    weighted = r if weights is None else r * weights.double().cpu().unsqueeze(-1)
    return torch.cat([weighted.sum(-2).unsqueeze(-1), weighted.mT @ r.clamp(min=1e-300).log()], -1)


def shared_words(sums: Tensor, what: str, first: int = 0) -> tuple[str, ...]:
    r"""Unused or indistinguishable values of a latent, in words, from sums over rows.

    With posteriors :math:`r_{nk}` and :math:`n_k = \sum_n r_{nk}`, the symmetrised Kullback-Leibler
    divergence of the components k and l of the data is estimated by :math:`\sum_n (r_{nk}/n_k -
    r_{nl}/n_l) \log (r_{nk}/r_{nl})`.

    Args:
        sums: of :func:`value_sums`, those of parts of the rows added up.
        what, first: as :func:`shared_values`.
    """
    counts, products = sums[:, 0].numpy(), sums[:, 1:].numpy()
    used = counts >= 1.0
    few = {k: f"{float(counts[k]):.2g}" for k in (~used).nonzero()[0].tolist()}
    words = [
        f"{what} {k + first} is empty: {number} row{'s' * (number != '1')} expected"
        for k, number in few.items()
    ]
    inner = products / counts.clip(1e-300)[:, None]  # (K, K)
    diagonal = inner.diagonal()
    divergence = diagonal[:, None] + diagonal - inner - inner.T
    same = (divergence < COPIES) & used & used[:, None]
    groups: list[list[int]] = []
    for k in used.nonzero()[0].tolist():
        home = next((group for group in groups if same[group[0], k]), None)
        groups.append([k]) if home is None else home.append(k)
    for group in groups:
        if len(group) > 1:
            words.append(
                f"{what}s {listed([str(k + first) for k in group])} are copies of each other"
            )
    if words:
        words.append(f"the data support {len(groups)} of the {len(counts)} {what}s")
    return tuple(words)


def listed(words: Sequence[str]) -> str:
    """Words as a list in a sentence."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def useless_values(
    program: Program, params: Params, num_rows: int, weights: Tensor | None = None
) -> tuple[str, ...]:
    """Unused and indistinguishable values of a categorical latent, in words.

    Args:
        program: on its rows; params: by site name, without leading dims.
        num_rows: rows it is run on; weights: how many rows each of them stands for; None for one.
    """
    sites = [site for site in program.sites if site.kind == "latent"]
    if any(
        site.num_values is None or math.prod(site.shape) * site.num_values > MAX_SUMMED
        for site in sites
    ):
        return ()
    names = [
        s.name
        for s in sites
        if s.distribution == "Categorical"
        and s.name in program.row_latents
        and s.shape == (num_rows,)
        and len(s.plates) == 1
        and not s.in_chain
    ]
    if not names or is_large(program.sites):
        return ()
    with torch.no_grad():
        marginals = program.latent_marginals(params)
    return tuple(
        words
        for name in names
        for words in shared_values(marginals[name], f"{name} value", weights=weights)
    )
