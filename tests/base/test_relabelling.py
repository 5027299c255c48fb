"""Columns matched against every assignment, and draws renamed to one name."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.encoder_names import seeds

from inference.base.relabelling import match_columns, relabel_draws
from inference.programs.program import Program
from inference.structures.registry import structure_of
from ppl_models import Bernoulli, DeepDiscreteEncoder, Mixture, NoisyOr

F64 = torch.float64


@settings(max_examples=30, deadline=None)
@given(seed=seeds, num_columns=st.integers(1, 5), num_extra=st.integers(0, 2), signs=st.booleans())
def test_match_columns_agrees_with_every_assignment(seed: int, num_columns: int, num_extra: int, signs: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    estimate = torch.randn(4, num_columns + num_extra, dtype=torch.float64, generator=generator)
    reference = torch.randn(4, num_columns, dtype=torch.float64, generator=generator)
    matching = match_columns(estimate, reference, signs)
    costs = []
    for chosen in itertools.permutations(range(num_columns + num_extra), num_columns):
        picked = estimate[:, list(chosen)]
        as_is, negated = (picked - reference).square().sum(0), (picked + reference).square().sum(0)
        costs.append(float((torch.minimum(as_is, negated) if signs else as_is).sum()))
    assert matching.cost == pytest.approx(min(costs))
    moved = torch.where(matching.flips, -1.0, 1.0) * estimate[:, matching.permutation]
    assert float((moved - reference).square().sum()) == pytest.approx(matching.cost)


@pytest.mark.parametrize("kind", ["encoder", "deep", "noisy-or", "mixture"])
def test_renamed_draws_carry_one_name_and_the_same_law(kind):
    generator = torch.Generator().manual_seed(0)
    if kind in ("encoder", "deep"):
        model = DeepDiscreteEncoder(6, (3,) if kind == "encoder" else (3, 2), bound=50.0)
    else:
        model = NoisyOr(6, 3) if kind == "noisy-or" else Mixture(3, component=Bernoulli(), num_items=6)
    data = (torch.rand(8, 6, generator=generator) < 0.5).to(F64)
    program, structure = Program(model, data), structure_of(model)
    truth = {name: value[0] for name, value in program.draw_prior(1, 3).items()}
    scrambled, count = [], 24
    for _ in range(count):
        one = {name: (value + 0.003 * torch.randn(value.shape, generator=generator, dtype=F64))[None] for name, value in truth.items()}
        one = {name: value.clamp(0.01, 0.99) if name in ("proportions", "prior", "failure", "leak", "weights") else value for name, value in one.items()}
        if "weights" in one:
            one["weights"] = one["weights"] / one["weights"].sum()
        for label in reversed(structure.labels()):
            size = label.features(one).shape[1]
            order = torch.randperm(size, generator=generator)
            flips = torch.rand(size, generator=generator) < 0.5 if label.signs else torch.zeros(size, dtype=torch.bool)
            one = label.rename(one, order, flips)
        scrambled.append(one)
    draws = {name: torch.cat([one[name] for one in scrambled]) for name in truth}
    renamed, changed = relabel_draws(draws, structure.labels(), truth)
    assert changed.any()
    for name, value in renamed.items():
        assert float((value - truth[name]).abs().max()) < 0.05, name
    torch.testing.assert_close(program.log_marginal(renamed), program.log_marginal(draws), rtol=1e-9, atol=1e-9)
