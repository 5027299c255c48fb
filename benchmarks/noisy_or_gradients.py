"""Variance and time of the gradient estimators of a noisy-OR guide, beside the score function of
the paper.

On simulated IMG rows at the true parameters, with the guide's logits where a recognition network
starts ("start") and near the exact posterior ("posterior"). One JSON line an estimator: the
variance of the gradient summed over rows and latents, its ratio to that of the score function
scaled by a running mean and variance, and seconds a call; the paper's is that with the baseline
network. Run: ``python benchmarks/noisy_or_gradients.py [--quick]``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import torch
from _bench import Lines, command_line, run
from papers.noisy_or_guides import (
    InputBaseline,
    RecognitionGuide,
    RunningScale,
    disarm,
    flip_log_odds,
    leave_one_out,
    local_expectations,
    score_function,
)
from torch import Tensor

from inference.programs import Program
from ppl_models import NoisyOr
from ppl_models.datasets import image_design, sample_noisy_or
from ppl_models.descriptions.noisy_or import log1mexp, weight_of_failure, weight_of_leak


def measure(args: argparse.Namespace) -> Lines:
    num_rows, num_draws = args.rows, args.draws
    truth = image_design()
    rows, _ = sample_noisy_or(truth, num_rows, seed=0)
    weights, leak, prior = (
        weight_of_failure(truth["failure"]),
        weight_of_leak(truth["leak"]),
        truth["prior"],
    )

    def log_joint(latents: Tensor) -> Tensor:
        eta = latents @ weights + leak
        items = torch.where(rows == 1, log1mexp(eta), -eta).sum(-1)
        return items + (latents * prior.log() + (1 - latents) * (-prior).log1p()).sum(-1)

    def log_odds(latents: Tensor) -> Tensor:
        return flip_log_odds(latents, rows, prior, weights, leak)

    model, generator = NoisyOr(64, 8), torch.Generator()
    start = RecognitionGuide(model.causes(), rows.mean(0)).logits(rows).detach()
    posterior = Program(model, rows).latent_means(truth)["causes"].clamp(0.02, 0.98).logit()
    for where, logits in (("start", start), ("posterior", posterior)):
        generator.manual_seed(1)
        signals = []

        def recorded(signal: Tensor, kept: list[Tensor] = signals) -> Tensor:
            kept.append(signal)
            return signal

        score_function(log_joint, logits, generator, recorded)
        scale = RunningScale().updated(
            signals[0]
        )  # of another draw: fixed while the variance is measured
        step = max(1.0, scale.variance**0.5)
        baseline = InputBaseline(64, rows.mean(0))
        for _ in range(
            args.updates
        ):  # trained on other draws: fixed while the variance is measured
            score_function(log_joint, logits, generator, recorded)
            baseline.descend(rows, scale(signals.pop()), 0.01)
        predicted = baseline(rows).detach()
        estimators: dict[str, Callable[[], Tensor]] = {
            "score function": lambda x=logits, s=scale, f=step: (
                score_function(log_joint, x, generator, s) * f
            ),
            "score function, baseline network": lambda x=logits, s=scale, f=step, b=predicted: (
                score_function(log_joint, x, generator, lambda signal: s(signal) - b) * f
            ),
            "leave-one-out, 4 draws": lambda x=logits: leave_one_out(log_joint, x, generator),
            "DisARM": lambda x=logits: disarm(log_joint, x, generator),
            "local expectations": lambda x=logits: local_expectations(log_odds, x, generator),
        }
        reference = None
        for name, estimate in estimators.items():
            began = time.perf_counter()
            draws = torch.stack([estimate() for _ in range(num_draws)])
            seconds = (time.perf_counter() - began) / num_draws
            variance = float(draws.var(0).sum())
            reference = reference or variance
            line = {
                "logits": where,
                "estimator": name,
                "variance": round(variance, 3),
                "ratio": round(variance / reference, 5),
            }
            yield line | {"seconds": round(seconds, 5), "rows": num_rows, "draws": num_draws}


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--updates", type=int, default=500, help="of the baseline network")
    run(parser, measure, argv, {"rows": 20, "draws": 20, "updates": 20})


if __name__ == "__main__":
    main()
