"""Free parameters against the rank of the Jacobian of the rows' log-likelihoods, at generic points,
by derivatives of the program alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import biject_to
from zoo.row import F64, Params, Row
from zoo.table import ZOO, at, near, quick_fit, simulated

from inference.identifiability.of_fit import identifiability_of
from inference.programs.program import Program
from inference.structures.classifiers.structure import ClassifierStructure
from inference.structures.registry import structure_of
from ppl_models import (
    AttributeGroups,
    Bernoulli,
    Dag,
    Hierarchy,
    HigherOrder,
    Independent,
    LatentAttributeModel,
    Normal,
    Poisson,
    Saturated,
)
from ppl_models.parts.distributions import binary_configurations
from ppl_models.parts.measurement import ExpGDM

SMALL, LARGE = (
    1e-13,
    1e-11,
)  # singular values beside the largest: zero below the one, not zero above the other, none between
COUNTED = tuple(
    row for row in ZOO if not isinstance(structure_of(row.model), ClassifierStructure)
)  # whose weights are counted as they are, and no price


def rank_at(model: Callable[..., Any], data: Any, point: Params) -> int:
    """Rank of the Jacobian, loadings that are exactly zero held; fails where a singular value is
    neither large nor zero.
    """
    program = Program(model, data)
    maps = {name: biject_to(program.site(name).support) for name in point}
    free = {name: maps[name].inv(value) for name, value in point.items()}
    moves = [
        (
            (value != 0)
            if name.startswith("loadings") and free[name].shape == value.shape
            else torch.ones_like(free[name], dtype=torch.bool)
        )
        for name, value in point.items()
    ]
    x = torch.cat([value.ravel() for value in free.values()]).requires_grad_()
    parts = x.split([value.numel() for value in free.values()])
    rows = program.log_marginal_rows(
        {
            name: maps[name](part.reshape(free[name].shape))
            for name, part in zip(free, parts, strict=True)
        }
    )
    weights = torch.ones_like(rows, requires_grad=True)
    (gradient,) = torch.autograd.grad(rows, x, weights, create_graph=True)  # linear in the weights
    columns = [torch.autograd.grad(entry, weights, retain_graph=True)[0] for entry in gradient]
    jacobian = torch.stack(columns, -1)[:, torch.cat([move.ravel() for move in moves])].detach()
    lengths = jacobian.norm(dim=0)
    values = torch.linalg.svdvals(
        jacobian / torch.where(lengths > SMALL * lengths.max(), lengths, 1.0)
    )
    relative = values / values[0]
    assert not bool(((relative > SMALL) & (relative < LARGE)).any()), relative
    return int((relative > LARGE).sum())


def is_doubted(record: dict[str, Any]) -> bool:
    """Whether the report on identifiability leaves open, or denies, that every parameter is
    determined.
    """
    return (
        record.get("verdict") in ("not established", "not identified")
        or record.get("is_full_rank") is False
        or record.get("identified") is False
    )


@pytest.mark.parametrize("row", COUNTED, ids=lambda row: row.name)
def test_the_count_is_the_rank_or_the_verdict_is_no(row: Row) -> None:
    point = at(near(row, 1, seed=11), 0)
    fit = replace(quick_fit(row), params=point)
    data = simulated(row, max(300, 6 * sum(value.numel() for value in point.values())), 3)
    rank = rank_at(row.model, data, point)
    counted = (
        fit.structure.num_free(point) if fit.bic_price is not None else fit.num_parameters
    )  # a price is of the entries that the rows inform
    found = identifiability_of(fit, data)
    if rank == counted:
        return
    assert rank < counted
    assert found is not None
    assert is_doubted(found.to_dict()), (rank, counted, found.text())


# ---------------------------------------------------------------- random models of attributes,
# under every distribution and rule


def drawn_pairs(rng: np.random.Generator, size: int) -> tuple[tuple[int, int], ...]:
    """Some pairs of attributes, the first before the second in a random order."""
    order = rng.permutation(size)
    pairs = [(int(order[i]), int(order[j])) for i in range(size) for j in range(i + 1, size)]
    return tuple(pair for pair in pairs if rng.random() < 0.5)


def drawn_model(seed: int) -> Any:
    """Pure items that determine every attribute's distribution, and items of several attributes
    under rules of all kinds.
    """
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 4)) + (seed % 5 == 4)
    distributions = [
        Hierarchy(drawn_pairs(rng, size)),
        Saturated(),
        Independent(),
        Dag(drawn_pairs(rng, size)),
        HigherOrder() if size > 2 else Saturated(),
    ]
    response = [Bernoulli(), Normal(), Poisson()][seed % 3]
    rows = [tuple(int(k == j) for k in range(size)) for j in range(size)] * (
        3 if isinstance(response, Bernoulli) else 2
    )
    names = [
        "gdm",
        "gdm",
        "dina",
        "dino",
        "additive",
        ExpGDM(order=2),
        *(["acdm", "rrum"] if isinstance(response, Bernoulli) else []),
    ]
    rules: list[Any] = ["additive"] * len(rows)
    for _ in range(3):
        asked = rng.permutation(size) < int(rng.integers(2, size + 1))
        rows.append(tuple(int(bit) for bit in asked))
        rules.append(names[int(rng.integers(len(names)))])
    model = LatentAttributeModel(
        rows, response, tuple(rules), distributions[seed // 2 % 5 if seed % 2 else 0]
    )
    return (
        AttributeGroups(model, ("a", "b"), free_items=(0, len(rows) - 1))
        if seed % 4 == 3
        else model
    )


def generic(model: Any, seed: int) -> tuple[Tensor, Params]:
    """A point inside the support of each site, and rows drawn there."""
    groups = isinstance(model, AttributeGroups)
    like = torch.zeros(800, len((model.model if groups else model).q_matrix), dtype=F64)
    if groups:
        like = torch.cat([like, torch.arange(len(like))[:, None] % 2], -1)
    generator, point = torch.Generator().manual_seed(seed), {}
    for site in Program(model, like).sites:
        if site.kind == "parameter":
            to_support = biject_to(site.support)
            shape = to_support.inverse_shape(torch.Size(site.shape))
            point[site.name] = to_support(torch.randn(shape, generator=generator, dtype=F64))
    if groups:
        return structure_of(model).simulate_like(point, like, seed)["items"], point
    return Program(model, None, len(like)).simulate(point, seed)["items"], point


def assert_counted(seed: int) -> None:
    model = drawn_model(seed)
    data, point = generic(model, seed)
    assert rank_at(model, data, point) == structure_of(model).num_free(point), (seed, model)


@pytest.mark.parametrize("seed", range(10))
def test_every_parameter_of_an_identified_model_is_counted_once(seed: int) -> None:
    assert_counted(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 210))
def test_every_parameter_of_many_identified_models_is_counted_once(seed: int) -> None:
    assert_counted(seed)


@pytest.mark.parametrize("seed", range(10))
def test_a_saturated_item_has_a_coefficient_for_each_profile_that_there_is(seed: int) -> None:
    """Of the brute-force kind: distinct rows of the profiles, and a design of full rank over
    them.
    """
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 5))
    rows = [
        *np.eye(size, dtype=int).tolist(),
        *(rng.permutation(size) < rng.integers(2, size + 1) for _ in range(4)),
    ]
    pairs = drawn_pairs(rng, size)
    layer = LatentAttributeModel(
        [[int(bit) for bit in row] for row in rows], items="gdm", root=Hierarchy(pairs)
    ).layers()[0]
    profiles = [
        p for p in binary_configurations(size).tolist() if all(p[a] >= p[b] for a, b in pairs)
    ]
    assert layer.graph is not None
    for row, uses in zip(rows, layer.graph, strict=True):
        asked = np.flatnonzero(row)
        distinct = {tuple(p[k] for k in asked) for p in profiles}
        design = torch.nn.functional.pad(
            layer.features(torch.tensor(profiles, dtype=F64))[:, uses], (1, 0), value=1.0
        )
        assert int(uses.sum()) + 1 == len(distinct) == int(torch.linalg.matrix_rank(design))
        for members in layer.terms[uses]:  # type: ignore[index]  # an effect stands with all that it is nested in
            inside = {int(k) for k in members.nonzero().ravel()}
            assert all(a in inside or a not in asked for a, b in pairs if b in inside)
