"""Errors of the annealed log-likelihood of encoders, beside those that it states.

Tables of 300 rows, drawn and scored at the true parameters, where all profiles can be summed over:
the authors' design of two layers (Normal and yes-or-no items) and dense yes-or-no items of 12 and
14 bits. ``z`` is the estimate less the exact log-likelihood over the standard error stated:
``covered`` the share of tables within 1.96, ``mean`` and ``spread`` of z; ``error`` the root mean
square of the difference, ``stated`` that of the standard errors, nats of a table; ``bound`` the
share of tables whose lower bound is one. One JSON line a design. Run: ``python
benchmarks/annealed_likelihood.py``.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

import numpy as np
import torch
from _bench import Lines, command_line, run, seeds

from inference.engines.gibbs_estimates import log_likelihood_rows
from inference.programs.program import Program
from inference.structures.layers.gibbs import LayeredGibbs
from ppl_models import Bernoulli, DeepDiscreteEncoder, Normal
from ppl_models.datasets import strict_design

ROWS = 300
ESTIMATE_SEED = 100_000


def dense(num_bits: int, seed: int) -> dict[str, torch.Tensor]:
    """Parameters of bits that all move each of 24 yes-or-no items."""
    generator = torch.Generator().manual_seed(seed)
    loadings = 1.5 * torch.randn(24, num_bits, generator=generator, dtype=torch.float64)
    return {
        "loadings_1": loadings,
        "intercepts_1": -loadings.sum(1) / 2,
        "proportions": torch.full((num_bits,), 0.4, dtype=torch.float64),
    }


DESIGNS = {
    "two layers, normal": (
        DeepDiscreteEncoder(18, (6, 2), Normal()),
        lambda _: strict_design(2, Normal()),
    ),
    "two layers, yes or no": (
        DeepDiscreteEncoder(18, (6, 2)),
        lambda _: strict_design(2, Bernoulli()),
    ),
    "dense, 12 bits": (
        DeepDiscreteEncoder(24, (12,), penalty=None),
        lambda seed: dense(12, seed),
    ),
    "dense, 14 bits": (
        DeepDiscreteEncoder(24, (14,), penalty=None),
        lambda seed: dense(14, seed),
    ),
}


def lines(args: argparse.Namespace) -> Lines:
    """Line by line: a design, over tables."""
    for name, (model, make) in DESIGNS.items():
        gaps, errors, bounds = [], [], []
        for seed in seeds(args):
            truth = make(seed)
            data = Program(model, None, ROWS).simulate(truth, seed)["items"]
            exact = float(Program(model, data).log_marginal_rows(truth).sum())
            found = log_likelihood_rows(
                LayeredGibbs.build(model, data),
                {site: value.unsqueeze(0) for site, value in truth.items()},
                torch.Generator().manual_seed(ESTIMATE_SEED + seed),  # not those of the data
            )
            gaps.append(float(found.rows.sum()) - exact)
            errors.append(float(found.variances.sum().sqrt()))
            bounds.append(float(found.bounds.sum()) < exact)
        z = np.array(gaps) / errors
        covered = float((abs(z) < 1.96).mean())
        yield {
            "design": name,
            "rows": ROWS,
            "tables": len(z),
            "covered": covered,
            "covered_error": math.sqrt(covered * (1 - covered) / len(z)),
            "mean": float(z.mean()),
            "spread": float(z.std()),
            "error": float(np.sqrt(np.mean(np.square(gaps)))),
            "stated": float(np.sqrt(np.mean(np.square(errors)))),
            "bound": float(np.mean(bounds)),
        }


def main(argv: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = command_line(__file__, __doc__, replicates=200, threads=1)
    run(parser, lines, argv, quick={"replicates": 2})


if __name__ == "__main__":
    main()
