"""Costs of independent classifiers: formulas of the paper written out, bounds, gradients."""

from __future__ import annotations

import math

import pytest
import torch
from papers.classifier_losses import (
    linear_surrogate,
    neg_cmi,
    neg_mi,
    neg_tc,
    unnorm_neg_cmi,
    unnorm_neg_ctc,
)
from torch import Tensor

from inference.structures.classifiers.regularizers import (
    geometric_log_weights,
    log_pseudo_weights,
    neg_ctc,
)

F64 = torch.float64


def random_scores(variates: int = 3, rows: int = 40, components: int = 4, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (
        2 * torch.randn(variates, rows, components, generator=generator, dtype=F64)
    ).log_softmax(-1)


def by_hand(log_scores: Tensor, normalised: bool = True) -> float:
    """Equation 24 of the paper with plain numbers, one row and component at a time."""
    beta, (v_total, n_total, c_total) = log_scores.exp(), log_scores.shape
    phi = beta.mean(1)
    total = 0.0
    for n in range(n_total):
        inner = sum(
            math.prod(
                float(beta[v, n, i]) * float(phi[v, i]) ** ((1 - v_total) / v_total)
                for v in range(v_total)
            )
            for i in range(c_total)
        )
        total -= math.log(inner) / n_total
    norm = sum(
        math.prod(float(phi[v, i]) ** (1 / v_total) for v in range(v_total)) for i in range(c_total)
    )
    return total + (math.log(norm) if normalised else 0.0)


@pytest.mark.parametrize("variates", [2, 3, 5])
def test_costs_are_those_of_the_paper(variates: int) -> None:
    scores = random_scores(variates)
    assert float(neg_ctc(scores)) == pytest.approx(by_hand(scores), abs=1e-12)
    assert float(unnorm_neg_ctc(scores)) == pytest.approx(
        by_hand(scores, normalised=False), abs=1e-12
    )
    if variates == 2:
        assert neg_cmi(scores) == neg_ctc(scores)
        assert unnorm_neg_cmi(scores) == unnorm_neg_ctc(scores)


def test_bounds() -> None:
    """Constant classifiers know nothing; classes that every variate tells apart reach -(V - 1) log
    C; the surrogate lies above.
    """
    constant = torch.tensor([0.2, 0.3, 0.5], dtype=F64).log().expand(4, 30, 3)
    assert float(neg_ctc(constant)) == pytest.approx(0.0, abs=1e-12)
    sure = torch.full((3, 4), 1e-200, dtype=F64).log().repeat(1, 8).reshape(3, 8, 4)
    label = torch.arange(8) % 4
    sure[:, torch.arange(8), label] = 0.0
    assert float(neg_ctc(sure)) == pytest.approx(-2 * math.log(4), abs=1e-12)
    for seed in range(5):
        scores = random_scores(seed=seed)
        assert float(unnorm_neg_ctc(scores)) >= float(neg_ctc(scores)) >= -2 * math.log(4)


def test_names_of_components_do_not_matter() -> None:
    scores = random_scores()
    assert float(neg_ctc(scores[..., [2, 0, 3, 1]])) == pytest.approx(
        float(neg_ctc(scores)), abs=1e-12
    )


def test_the_surrogate_has_the_gradient_of_the_cost() -> None:
    """By automatic differentiation of both; and its mean over halves of the rows is that of all of
    them.
    """
    logits = (
        2 * torch.randn(3, 40, 4, generator=torch.Generator().manual_seed(1), dtype=F64)
    ).requires_grad_()
    scores = logits.log_softmax(-1)
    (exact,) = torch.autograd.grad(neg_ctc(scores), logits, retain_graph=True)
    log_phi = log_pseudo_weights(scores).detach()
    log_weights = geometric_log_weights(log_phi)
    joint = (scores - log_phi.unsqueeze(-2)).sum(0) + log_weights
    shares = joint.softmax(-1).mean(0).detach()
    (linear,) = torch.autograd.grad(
        linear_surrogate(scores, log_phi, shares, log_weights), logits, retain_graph=True
    )
    torch.testing.assert_close(linear, exact, rtol=0, atol=1e-14)
    halves = sum(
        linear_surrogate(part, log_phi, shares, log_weights) for part in scores.split(20, 1)
    )
    (halved,) = torch.autograd.grad(halves / 2, logits)
    torch.testing.assert_close(halved, exact, rtol=0, atol=1e-14)


def test_agreement_of_labels() -> None:
    """Equation 45 cell by cell, with another number of labels in every variate; perfect agreement
    of two is the entropy.
    """
    parts = [random_scores(1, 30, size, seed=size)[0] for size in (2, 3, 4)]
    alpha = [part.exp() for part in parts]
    expected = 0.0
    for a in range(2):
        for b in range(3):
            for c in range(4):
                cell = float((alpha[0][:, a] * alpha[1][:, b] * alpha[2][:, c]).mean())
                product = float(
                    alpha[0][:, a].mean() * alpha[1][:, b].mean() * alpha[2][:, c].mean()
                )
                expected -= cell * math.log(cell / product)
    assert float(neg_tc(parts)) == pytest.approx(expected, abs=1e-12)
    sure = torch.eye(4, dtype=F64).repeat(5, 1).clamp(min=1e-300).log()
    assert float(neg_mi([sure, sure])) == pytest.approx(-math.log(4), abs=1e-9)


def test_what_the_costs_refuse() -> None:
    with pytest.raises(ValueError, match="of two variates, got 3"):
        neg_cmi(random_scores())
    with pytest.raises(ValueError, match="of two variates, got 1"):
        neg_mi([random_scores()[0]])
    with pytest.raises(ValueError, match="at least two variates"):
        neg_tc([random_scores()[0]])
    with pytest.raises(ValueError, match="cells of labels were asked for"):
        neg_tc([random_scores(1, 3, 100, seed=s)[0] for s in range(5)])
