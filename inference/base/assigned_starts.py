"""Starts of a program from rows that are assigned to the values of its latent."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import torch
from torch import Generator, Tensor

from inference.programs.program import Params
from ppl_models.data.tables import first_tensor

if TYPE_CHECKING:
    from inference.base.structure import Problem


AT_ONCE = 2**20  # numbers of the rows
NUM_INNER = 1  # as EM has by default, whose steps are recorded once for both


def centres(
    x: Tensor,
    num: int,
    spread: bool,
    generator: Generator,
    num_steps: int = 0,
    is_greedy: bool = False,
) -> Tensor:
    """Rows of x, by k-means++ (D. Arthur and S. Vassilvitskii 2007) or uniformly, (K, J).

    Args:
        x: (N, J); num: K; spread: k-means++.
        num_steps: at most so many steps of Lloyd's algorithm from there (S. Lloyd 1982,
            doi:10.1109/TIT.1982.1056489): centres are means then.
        is_greedy: whether every further row is the best of several that k-means++ draws (A.
            Bhattacharya et al. 2020, doi:10.4230/LIPIcs.ESA.2020.18).
    """
    picked = x[_picked(x, num, spread, generator, 2 + int(math.log(num)) if is_greedy else 1)]
    for _ in range(num_steps):
        which = nearest(x, picked)
        sums = torch.zeros_like(picked).index_add_(0, which, x)
        counts = torch.bincount(which, minlength=num).unsqueeze(-1)
        means = torch.where(counts > 0, sums / counts.clamp(min=1), picked)
        if torch.equal(means, picked):
            break
        picked = means
    return picked


def _picked(
    x: Tensor, num: int, spread: bool, generator: Generator, num_tried: int
) -> list[int] | Tensor:
    """Indices of K rows."""
    if not spread:
        return torch.randperm(len(x), generator=generator)[:num]
    picked = [int(torch.randint(len(x), (1,), generator=generator))]
    closest = _squares(x, x[picked[0]])
    while len(picked) < num:
        weights = closest if float(closest.sum()) > 0 else torch.ones_like(closest)
        tried = torch.multinomial(weights, num_tried, replacement=True, generator=generator)
        left = [torch.minimum(closest, _squares(x, x[row])) for row in tried]
        best = min(range(num_tried), key=lambda i: float(left[i].sum()))
        picked.append(int(tried[best]))
        closest = left[best]
    return picked


def _some_rows(x: Tensor) -> tuple[Tensor, ...]:
    return cast("tuple[Tensor, ...]", x.split(max(1, AT_ONCE // max(1, x.shape[-1]))))


def _squares(x: Tensor, centre: Tensor) -> Tensor:
    """Squared distances of rows from one centre, (N,)."""
    return torch.cat([(rows - centre).square_().sum(-1) for rows in _some_rows(x)])


def nearest(x: Tensor, picked: Tensor) -> Tensor:
    """Index of the nearest of K centres to each row, (N,)."""
    return torch.cat([torch.cdist(rows, picked).argmin(-1) for rows in _some_rows(x)])


def labelled_owners(owner: Tensor, table: Tensor) -> Tensor:
    """Groups of rows (R, N) renamed to agree with labels most, labelled rows as these say.

    Args:
        owner: 0, ..., K - 1; table: log p(label | group), (N, K), alike where nothing is known.
    """
    from scipy.optimize import linear_sum_assignment

    size, told = table.shape[-1], (table != table[:, :1]).any(-1)
    table = table.clamp(min=-1e3)
    out = []
    for own in owner:
        gain = torch.nn.functional.one_hot(own[told], size).to(table).mT @ table[told]
        _, names = linear_sum_assignment(-gain.cpu().numpy())
        renamed = torch.as_tensor(names, device=own.device)[own]
        out.append(torch.where(told, table.argmax(-1), renamed))
    return torch.stack(out)


def labelled_centres(x: Tensor, table: Tensor, others: Tensor) -> Tensor:
    """Centres (K, J): means of the rows with each label, the farthest of others where none has it.

    Seeded k-means (S. Basu, A. Banerjee and R. Mooney 2002, ICML).

    Args:
        x: (N, J); table: as :func:`labelled_owners`; others: (K, J).
    """
    sure = (table != table[:, :1]).any(-1) & (table == table.amax(-1, keepdim=True)).sum(-1).eq(1)
    share = torch.nn.functional.one_hot(table[sure].argmax(-1), table.shape[-1]).to(x)  # (n, K)
    counts = share.sum(0)
    found = share.mT @ x[sure] / counts.clamp(min=1).unsqueeze(-1)
    for k in (counts == 0).nonzero()[:, 0].tolist():
        apart = torch.cdist(others, found[counts > 0]) if bool((counts > 0).any()) else None
        found[k] = others[k if apart is None else int(apart.amin(-1).argmax())]
        counts[k] = 1
    return found


def split_share(share: Tensor, which: int, statistic: Tensor, mask: Tensor | None) -> Tensor:
    """Split one of K components across the direction of its largest spread: K + 1 chances.

    Args:
        share: (N, K); which: of them; statistic: of the rows, (N, S); mask: which of its entries
            are there, None for all.
    """
    share_k = share[:, which : which + 1]
    seen = share_k if mask is None else share_k * mask
    mean = (statistic * seen).sum(0) / seen.sum(0).clamp(min=1e-12)
    x = (statistic - mean) * (1.0 if mask is None else mask)
    x = x / ((x.square() * share_k).sum(0) / share_k.sum()).sqrt().clamp(min=1e-12)
    axis = torch.linalg.eigh((x * share_k).mT @ x).eigenvectors[:, -1]
    side = (x @ axis).unsqueeze(-1)
    half = torch.where(side > 0, 0.9, 0.1).to(share)  # about the component's own mean
    return torch.cat(
        [share[:, :which], share_k * half, share_k * (1 - half), share[:, which + 1 :]], 1
    )


def assigned_start(problem: Problem, num_starts: int) -> Params | None:
    r"""Parameters most probable when rows belong to the nearest of K k-means++ rows.

    For programs with one categorical latent in one plate over the rows of a table:
    :math:`\arg\max_\theta \log p(x, z, \theta)` with z the row's nearest centre on standardised
    columns; of every second start z is drawn uniformly, for components that cross, such as lines,
    are no neighbourhoods. None for other programs.

    Args:
        problem: program and data.
        num_starts: R.
    """
    program, table = problem.program(), first_tensor(problem.data)
    sites = [site for site in program.sites if site.kind == "latent"]
    rows = (problem.num_rows,)
    if len(sites) != 1 or program.names("local") or not isinstance(table, Tensor):
        return None
    site = sites[0]
    if (
        site.distribution != "Categorical"
        or site.shape != rows
        or site.name not in program.row_latents
        or not site.num_values
        or site.num_values > rows[0]
    ):
        return None
    generator = torch.Generator().manual_seed(problem.seed)
    x = table.detach().cpu().double().reshape(rows[0], -1)
    x = x - x.nanmean(0)
    x = (x / x.square().nanmean(0).sqrt().clamp(min=1e-12)).nan_to_num(0.0)
    # (R, K, J)
    picked = torch.stack([centres(x, site.num_values, True, generator) for _ in range(num_starts)])
    z = torch.cdist(x, picked).argmin(-1)  # (R, N)
    if num_drawn := num_starts // 2:
        z[-num_drawn:] = torch.randint(site.num_values, (num_drawn, *rows), generator=generator)
    z = z.to(table.device)
    known = (problem.labels or {}).get(site.name)
    z = z if known is None else labelled_owners(z, known)
    like = program.draw_prior(num_starts, problem.seed)
    middle = program.constrained(program.centre(like))
    start = {name: value.detach() for name, value in middle.items()}
    posteriors = program.factor_posteriors(start)
    owner = torch.nn.functional.one_hot(z, site.num_values).mT.to(x)  # (R, K, N)
    if program.broadcasts() and (num_starts > 1 or program.is_own):
        owner = owner.transpose(0, 1)  # enumerated dims lie on the left of restarts
    weights = {name: _assigned(value, owner) for name, value in posteriors.weights.items()}
    optimum = problem.generic_steps(NUM_INNER).m_step(replace(posteriors, weights=weights), start)
    sound = torch.stack(
        [value.isfinite().reshape(num_starts, -1).all(-1) for value in optimum.values()]
    ).all()
    return optimum if bool(sound) else None


def _assigned(weights: Tensor, owner: Tensor) -> Tensor:
    """Posterior of a factor, (R, K, ..., N) or (K, R, ..., N), where each row's latent is known."""
    (first, second, rows), dim = owner.shape, weights.dim()
    if dim < 3 or weights.shape[:2] != (first, second) or weights.shape[-1] != rows:
        return weights  # of a factor without the latent
    return owner.reshape(first, second, *[1] * (dim - 3), rows).expand_as(weights).to(weights)
