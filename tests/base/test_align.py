"""Columns matched against every assignment, and draws renamed to one name."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings, strategies as st
from support.encoder_names import seeds

from inference.base.align import match_all, match_columns, matched, relabel_draws
from inference.programs.program import Program
from inference.structures.registry import structure_of
from ppl_models import Bernoulli, DeepDiscreteEncoder, HiddenMarkov, Mixture, NoisyOr, Normal

F64 = torch.float64


@settings(max_examples=30, deadline=None)
@given(seed=seeds, num_columns=st.integers(1, 5), num_extra=st.integers(0, 2), signs=st.booleans())
def test_match_columns_agrees_with_every_assignment(
    seed: int, num_columns: int, num_extra: int, signs: bool
) -> None:
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


@settings(max_examples=30, deadline=None)
@given(seed=seeds, num_columns=st.integers(2, 4), num_extra=st.integers(0, 2))
def test_signs_by_column_and_forbidden_pairs_agree_with_every_assignment(
    seed: int, num_columns: int, num_extra: int
) -> None:
    """Only some columns of the estimate may be negated; fewest forbidden pairs, then least cost."""
    generator = torch.Generator().manual_seed(seed)
    num = num_columns + num_extra
    estimate = torch.randn(4, num, dtype=F64, generator=generator)
    reference = torch.randn(4, num_columns, dtype=F64, generator=generator)
    signs = torch.rand(num, generator=generator) < 0.5
    forbidden = torch.rand(num, num_columns, generator=generator) < 0.5
    matching = matched(estimate, reference, signs, forbidden)
    ranks = []
    for chosen in itertools.permutations(range(num), num_columns):
        order = list(chosen)
        picked = estimate[:, order]
        as_is, negated = (picked - reference).square().sum(0), (picked + reference).square().sum(0)
        cost = torch.where(signs[order], torch.minimum(as_is, negated), as_is).sum()
        ranks.append((int(forbidden[order, range(num_columns)].sum()), float(cost), order))
    assert matching.permutation.tolist() == min(ranks)[2]
    assert matching.cost == pytest.approx(min(ranks)[1])
    moved = torch.where(matching.flips, -1.0, 1.0) * estimate[:, matching.permutation]
    assert float((moved - reference).square().sum()) == pytest.approx(matching.cost)


@settings(max_examples=30, deadline=None)
@given(seed=seeds, size=st.integers(2, 4), signs=st.booleans(), of_kinds=st.booleans())
def test_draws_are_matched_as_every_assignment_says(
    seed: int, size: int, signs: bool, of_kinds: bool
) -> None:
    """Least squares over permutations that keep kinds; lengths of the features differ widely."""
    generator = torch.Generator().manual_seed(seed)
    scales = 4 ** torch.rand(3, size, 1, dtype=F64, generator=generator)
    features = scales * torch.randn(3, size, 2, dtype=F64, generator=generator)
    target = 2 * torch.randn(size, 2, dtype=F64, generator=generator)
    kinds = torch.arange(size) % 2 if of_kinds else None
    permutations, flips = match_all(features, target, signs, kinds)
    for own, permutation, flipped in zip(features, permutations, flips, strict=True):
        costs = {}
        for order in itertools.permutations(range(size)):
            if kinds is None or torch.equal(kinds[list(order)], kinds):
                moved = own[list(order)]
                ends = [(moved - target).square().sum(-1), (moved + target).square().sum(-1)]
                costs[order] = float((torch.minimum(*ends) if signs else ends[0]).sum())
        assert tuple(permutation.tolist()) == min(costs, key=costs.__getitem__)
        moved = torch.where(flipped, -1.0, 1.0).unsqueeze(-1) * own[permutation]
        assert float((moved - target).square().sum()) == pytest.approx(min(costs.values()))


@pytest.mark.parametrize("kind", ["encoder", "deep", "noisy-or", "mixture"])
def test_renamed_draws_carry_one_name_and_the_same_distribution(kind):
    generator = torch.Generator().manual_seed(0)
    if kind in ("encoder", "deep"):
        model = DeepDiscreteEncoder(6, (3,) if kind == "encoder" else (3, 2), bound=50.0)
    else:
        model = (
            NoisyOr(6, 3) if kind == "noisy-or" else Mixture(3, component=Bernoulli(), num_items=6)
        )
    data = (torch.rand(8, 6, generator=generator) < 0.5).to(F64)
    program, structure = Program(model, data), structure_of(model)
    truth = {name: value[0] for name, value in program.draw_prior(1, 3).items()}
    scrambled, count = [], 24
    for _ in range(count):
        one = {
            name: (value + 0.003 * torch.randn(value.shape, generator=generator, dtype=F64))[None]
            for name, value in truth.items()
        }
        one = {
            name: (
                value.clamp(0.01, 0.99)
                if name in ("proportions", "prior", "failure", "leak", "weights")
                else value
            )
            for name, value in one.items()
        }
        if "weights" in one:
            one["weights"] = one["weights"] / one["weights"].sum()
        for label in reversed(structure.labels()):
            size = label.features(one).shape[1]
            order = torch.randperm(size, generator=generator)
            flips = (
                torch.rand(size, generator=generator) < 0.5
                if label.signs
                else torch.zeros(size, dtype=torch.bool)
            )
            one = label.rename(one, order, flips)
        scrambled.append(one)
    draws = {name: torch.cat([one[name] for one in scrambled]) for name in truth}
    renamed, changed = relabel_draws(draws, structure.labels(), truth)
    assert changed.any()
    for name, value in renamed.items():
        assert float((value - truth[name]).abs().max()) < 0.05, name
    torch.testing.assert_close(
        program.log_marginal(renamed), program.log_marginal(draws), rtol=1e-9, atol=1e-9
    )


def test_draws_are_not_renamed_out_of_the_interval_that_the_user_named():
    """Flips move loadings into the intercepts; where a draw would leave the box for it, it is
    exchanged only, or keeps its names.
    """
    model = DeepDiscreteEncoder(6, (2,), bound=1.0)
    data = torch.ones(1, 6, dtype=F64)
    program, structure = Program(model, data), structure_of(model)
    one = {
        "proportions": torch.tensor([0.3, 0.6], dtype=F64),
        "loadings_1": torch.full((6, 2), -0.2, dtype=F64),
        "intercepts_1": torch.zeros(6, dtype=F64),
    }
    one["loadings_1"][:3, 0], one["loadings_1"][3:, 1] = 0.9, 0.8
    (label,) = structure.labels()
    batch = {name: value[None] for name, value in one.items()}
    both, none, own, other = (
        torch.tensor([True, True]),
        torch.tensor([False, False]),
        torch.tensor([0, 1]),
        torch.tensor([1, 0]),
    )
    far = {
        **batch,
        "loadings_1": -batch["loadings_1"],
        "intercepts_1": torch.full((1, 6), -0.9, dtype=F64),
    }  # turned back they are at -1.6
    cases = [batch, label.rename(batch, own, both), label.rename(batch, other, none), far]
    draws = {name: torch.cat([case[name] for case in cases]) for name in one}
    assert bool(program.inside(draws).all())
    unlimited, _ = relabel_draws(draws, structure.labels(), one)
    renamed, changed = relabel_draws(draws, structure.labels(), one, program.inside)
    assert program.inside(unlimited).tolist() == [True, True, True, False]
    assert program.inside(renamed).tolist() == [True] * 4
    for name, value in one.items():
        torch.testing.assert_close(renamed[name][:3], value.expand(3, *value.shape))
        torch.testing.assert_close(renamed[name][:3], unlimited[name][:3])
    assert not torch.allclose(unlimited["loadings_1"][3], renamed["loadings_1"][3])
    assert changed.tolist()[:3] == [False, True, True]
    torch.testing.assert_close(program.log_marginal(renamed), program.log_marginal(draws))


def test_states_that_possible_moves_leave_alike_are_renamed_in_draws() -> None:
    """Of a star the points may exchange names, the centre not; of a circle none without others."""
    star = ((True, True, True), (True, True, False), (True, False, True))
    structure = structure_of(HiddenMarkov(3, Normal(), 2, allowed=star))
    program = Program(structure.model, torch.zeros(4, 5, 2, dtype=F64))
    truth = {name: value[0] for name, value in program.draw_prior(1, 0).items()}
    truth["predictors"] = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]], dtype=F64)
    (label,) = structure.labels()
    scrambled = label.rename(
        {name: value[None] for name, value in truth.items()},
        torch.tensor([0, 2, 1]),
        torch.zeros(3, dtype=torch.bool),
    )
    draws = {name: torch.stack([value, scrambled[name][0], value]) for name, value in truth.items()}
    renamed, changed = relabel_draws(draws, structure.labels(), truth)
    assert changed.tolist() == [False, True, False]
    for name, value in renamed.items():
        torch.testing.assert_close(value, truth[name].expand_as(value))
    assert bool((scrambled["transitions"][0, 1, 2] == 0).all())
    circle = ((True, True, False), (False, True, True), (True, False, True))
    assert not structure_of(HiddenMarkov(3, Normal(), 2, allowed=circle)).labels()
