"""The designs of latent attributes against the numbers of their page."""

from __future__ import annotations

import math

import pytest
import torch

from ppl_models.datasets import causal_attributes, mastery_test
from ppl_models.parts.distributions import binary_configurations

ALL = binary_configurations(5)


def chance(structure: str, **bits: int) -> float:
    """P of the attributes named a0, a1, ... having these values."""
    agrees = torch.ones(32, dtype=torch.bool)
    for name, bit in bits.items():
        agrees &= ALL[:, int(name[1])] == bit
    return float(causal_attributes(structure).params["profiles"][agrees].sum())


@pytest.mark.parametrize("structure", ["chain", "collider", "tree", "unfaithful"])
def test_the_tables(structure: str) -> None:
    design = causal_attributes(structure)
    profiles = design.params["profiles"]
    assert float(profiles.sum()) == pytest.approx(1)
    assert bool((profiles > 0).all())
    matrix = torch.tensor(design.model.q_matrix)
    assert matrix.shape == (20, 5)
    assert torch.equal(matrix.sum(0), torch.tensor([5, 6, 6, 6, 5]))
    assert torch.allclose(design.params["loadings"].sum(-1), torch.tensor(3.0, dtype=torch.float64))


def test_conditionals_of_the_page() -> None:
    assert chance("chain", a0=1, a1=1) == pytest.approx(0.5 * 0.6)
    assert chance("chain", a2=1, a3=1) == pytest.approx(0.5 * 0.4)
    assert chance("chain", a3=0, a4=1) == pytest.approx(0.5 * 0.6)
    assert chance("tree", a0=1, a2=1) == pytest.approx(0.5 * 0.4)
    assert chance("tree", a1=1, a3=1) == pytest.approx(0.5 * 0.6)
    assert chance("tree", a1=0, a4=1) == pytest.approx(0.5 * 0.6)
    for bits, expected in (((1, 1), 0.8), ((1, 0), 0.3), ((0, 1), 0.1), ((0, 0), 0.9)):
        assert chance("collider", a2=bits[0], a3=bits[1], a4=1) == pytest.approx(0.25 * expected)
    assert chance("unfaithful", a2=1, a4=1) == pytest.approx(0.25)
    assert chance("unfaithful", a2=1, a4=1) == pytest.approx(
        chance("unfaithful", a2=1) * chance("unfaithful", a4=1)
    )


def test_draws() -> None:
    design = causal_attributes("tree")
    items, attributes = design.draw(4000, seed=3, missing=0.2)
    assert items.shape == (4000, 20)
    assert float(items.isnan().double().mean()) == pytest.approx(0.2, abs=0.02)
    mean = (design.params["intercepts"] + attributes @ design.params["loadings"].mT).nan_to_num()
    residual = (items - mean)[~items.isnan()]
    assert float(residual.mean()) == pytest.approx(0, abs=0.02)
    assert float(residual.var()) == pytest.approx(1, abs=0.03)
    assert torch.equal(design.draw(10, seed=1)[1], design.draw(10, seed=1)[1])
    shares = ((attributes[:, None] == ALL).all(-1)).double().mean(0)
    assert float((shares - design.params["profiles"]).abs().max()) < 5 * math.sqrt(0.05 / 4000)


@pytest.mark.parametrize("rule", ["dina", "dino", "additive", "gdm", "acdm", "rrum", "mixed"])
def test_a_test(rule: str) -> None:
    design = mastery_test(20, 4, rule, seed=2)
    errors = design.model.guess_slip(design.params)
    assert bool(((errors >= 0.05 - 1e-12) & (errors <= 0.25 + 1e-12)).all())
    asked = torch.tensor(design.model.q_matrix).sum(-1)
    assert asked[:8].eq(1).all()
    assert set(asked[8:].tolist()) <= {2, 3}
    items, attributes = design.draw(500)
    assert bool(((items == 0) | (items == 1)).all())
    assert float(torch.corrcoef(attributes.mT)[0, 1]) > 0.1  # skills go together


def test_features_count_alike_on_the_scale_of_the_rule() -> None:
    design = mastery_test(20, 4, "mixed", seed=2)
    assert len(set(design.model.items)) > 4
    chances = design.model.expected_responses(design.params, binary_configurations(4))  # (C, J)
    for j, (rule, row) in enumerate(zip(design.model.items, design.model.q_matrix, strict=True)):
        if sum(row) < 2 or rule not in ("acdm", "rrum"):
            continue
        own = torch.tensor(row).double()
        by_number = [
            float(
                chances[
                    (binary_configurations(4) @ own == n)
                    & (binary_configurations(4) @ (1 - own) == 0),
                    j,
                ][0]
            )
            for n in range(sum(row) + 1)
        ]
        steps = by_number if rule == "acdm" else [math.log(value) for value in by_number]
        differences = [after - before for before, after in zip(steps, steps[1:], strict=False)]
        assert differences == pytest.approx([differences[0]] * len(differences))


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="structure must be one of 'chain'"):
        causal_attributes("ring")
    with pytest.raises(ValueError, match="at least 2 num_attributes = 10"):
        mastery_test(9)
    with pytest.raises(ValueError, match="num_attributes"):
        mastery_test(num_attributes=2)
    with pytest.raises(ValueError, match="rule must be one of"):
        mastery_test(rule="cdm")
    with pytest.raises(ValueError, match="missing must be a share"):
        mastery_test().draw(10, missing=1.0)
