"""What is said of the latents found: filtered, merged, matched, recovered, stable."""

from __future__ import annotations

import math

import pytest
import torch
from support.small_network import small_data, small_fit, small_truth
from torch import Tensor

from inference import EM, fit
from inference.inspection import filter_latents, filter_merge_refit, matching_stability, recovery
from inference.inspection.noisy_or import merge_latents
from ppl_models import NoisyOr

F64 = torch.float64


def failures(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=F64)


def test_the_filter_by_hand() -> None:
    """A strong latent, its double, the double's double, one too rare, one without effect."""
    one, near, far = (
        [0.1] * 8 + [1.0] * 2,
        [0.1 + 0.4] * 8 + [1.0] * 2,
        [0.9] * 7 + [0.79] + [1.0] * 2,
    )
    params = {
        "prior": torch.tensor([0.3, 0.2, 0.1, 0.02, 0.5], dtype=F64),
        "failure": failures(one, near, far, [0.1] * 10, [0.80] * 10),
    }
    verdict = filter_latents(params)
    assert verdict.discarded == (3, 4)  # a prior of exactly 0.02, failures of exactly 0.80
    assert verdict.doubles == {1: 0}
    assert verdict.kept == (0, 2)  # far is 3.09 from near, which is dropped, and 6.29 from one
    assert float(verdict.distance[2]) == pytest.approx(6.29)
    chained = filter_latents(params, chain=True)
    assert chained.kept == (0,)
    assert chained.doubles == {1: 0, 2: 1}
    merged = merge_latents(params, chained)
    assert float(merged["prior"][0]) == pytest.approx(1 - 0.7 * 0.8 * 0.9)
    assert float(merged["failure"][0, 0]) == pytest.approx(
        (0.3 * 0.1 + 0.2 * 0.5 + 0.1 * 0.9) / 0.6
    )


def test_recovery_by_hand() -> None:
    truth = {
        "prior": torch.tensor([0.3, 0.3], dtype=F64),
        "failure": failures([0.1, 1.0], [1.0, 0.1]),
    }
    found = {
        "prior": torch.tensor([0.25, 0.01, 0.4], dtype=F64),
        "failure": failures([1.0, 0.271], [0.1, 1.0], [0.28, 1.0]),
    }
    score = recovery(found, truth)
    assert score.match == (2, 0)
    assert score.num_recovered == 1  # log(0.271 / 0.1) < 1 < log(0.28 / 0.1)
    assert not score.is_full
    assert float(score.cost[0]) == pytest.approx(math.log(2.8))
    assert score.prior_error == pytest.approx(0.05)
    assert score.edge_f1 == 1.0
    fewer = recovery({"prior": found["prior"][:1], "failure": found["failure"][:1]}, truth)
    assert fewer.match == (-1, 0)
    with pytest.raises(ValueError, match="2 items"):
        recovery({"prior": found["prior"], "failure": torch.ones(3, 4)}, truth)


def test_a_rare_latent_is_judged_by_what_is_lost() -> None:
    """30 rows show it: the best estimate there can be misses some log-failure by more than 1, and
    loses one part in a hundred.
    """
    leak = torch.full((40,), 0.05, dtype=F64)
    truth = {"prior": torch.tensor([0.03, 0.4], dtype=F64), "leak": leak}
    truth["failure"] = torch.tensor([[0.1] * 20 + [1.0] * 20, [1.0] * 20 + [0.2] * 20], dtype=F64)
    counts = torch.distributions.Binomial(30, (1 - leak) * truth["failure"][0])
    torch.manual_seed(0)
    worst, lost = [], []
    for _ in range(50):
        rare = (counts.sample() / 30 / (1 - leak)).clamp(
            max=1.0
        )  # maximum likelihood, were it seen when the latent is on
        found = recovery(
            {"prior": truth["prior"], "failure": torch.stack([truth["failure"][1], rare])}, truth
        )
        worst.append(found.num_recovered)
        lost.append(float(found.lost[0]))
        assert found.num_explained == 2
        assert float(found.lost[1]) == 0.0
        assert found.lost_share < float(found.lost[0])  # the other weighs more
    assert sum(one < 2 for one in worst) > 25  # the published cost says not found
    nats = 40 / (
        2 * 30
    )  # half a nat a parameter over the rows that show it: the theory of maximum likelihood
    zero, one = 0.95 * 0.1, 1 - 0.95 * 0.1
    said = 20 * 2 * ((zero**0.5 - 0.95**0.5) ** 2 + (one**0.5 - 0.05**0.5) ** 2)
    assert sum(lost) / 50 == pytest.approx(nats / said, rel=0.4)
    missing = recovery({"prior": truth["prior"][1:], "failure": truth["failure"][1:]}, truth)
    assert missing.lost.tolist() == [1.0, 0.0]
    assert missing.num_explained == 1
    assert missing.lost_share == pytest.approx(
        0.03 * said / (0.03 * said + 0.4 * float(_said(0.2))), rel=1e-9
    )
    useless = recovery({"prior": truth["prior"], "failure": torch.ones(2, 40, dtype=F64)}, truth)
    assert useless.lost.tolist() == [1.0, 1.0]
    assert useless.lost_share == pytest.approx(1.0)


def _said(failure: float) -> float:
    zero = 0.95 * failure
    return 20 * 2 * ((zero**0.5 - 0.95**0.5) ** 2 + ((1 - zero) ** 0.5 - 0.05**0.5) ** 2)


def test_filter_merge_refit_repairs_doubles() -> None:
    """A latent split into two equal ones, and noise: after the call the distribution is that of the
    right size.
    """
    truth = small_truth()
    half = 1 - (1 - truth["prior"][0]).sqrt()
    start = {
        "prior": torch.cat(
            [half[None], truth["prior"][1:], half[None], torch.tensor([0.01], dtype=F64)]
        ),
        "failure": (
            torch.cat(
                [truth["failure"], truth["failure"][:1], torch.full((1, 16), 0.95, dtype=F64)]
            ).clamp(max=0.999)
        ),
        "leak": truth["leak"],
    }
    with pytest.warns(UserWarning, match="did not converge"):
        wide = fit(NoisyOr(16, 7), small_data(), EM(max_iterations=1), init=start)
    verdict = filter_latents(wide.params, double_distance=2.0)
    before, after = filter_merge_refit(wide, small_data(), verdict)
    assert before is wide
    assert after.model == NoisyOr(16, 5)
    assert recovery(after.params, truth).is_full
    assert after.log_likelihood > small_fit().log_likelihood - 0.5


def test_stability_counts_partners_kept() -> None:
    truth = {"failure": failures([0.1, 1.0, 1.0], [1.0, 0.1, 1.0])}
    last = failures([0.1, 1.0, 1.0], [1.0, 0.1, 1.0])
    other = failures([1.0, 1.0, 0.5], [0.2, 1.0, 1.0])
    stability = matching_stability(
        {"failure": torch.stack([last.flip(0), other, last, last])}, truth
    )
    assert stability.tolist() == [0, 0, 2, 2]
