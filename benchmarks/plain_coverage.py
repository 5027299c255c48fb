"""Do the 95 % intervals of the plain call hold the truth in 95 %? ``fit(model, data)`` with nothing
named, then ``standard_errors``.

Deep discrete encoders (graph given; yes-no items, scales, categories, Normal items), mixtures of
Bernoulli and of Normal items and rows, a hidden Markov model, a noisy-OR network, and latent
attribute models of four rules of the items, and of Normal items, each with the library's default
priors, engine and starts, on fresh rows of one truth. Estimates are brought under the truth's names
by ``align``, but for attributes, which have theirs. One line a family: for each site the share of
entries whose interval holds the truth, and its standard error over data sets; ``held``, the share
of entries on a bound, which have no interval and are not counted (an edge that noisy-OR's search
leaves out is one; entries whose true value is a bound are left out altogether); ``by_normal``, the
coverage of the normal intervals on the scale of the coordinates, which do not know how few rows
there are; ``refused``, data sets for which ``standard_errors`` gave no interval at all, by reason.

Run: ``python benchmarks/plain_coverage.py [--family ...] [--replicates 100] [--rows 400]
[--first-seed 0]``.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import torch
from _bench import Lines, command_line, run, seeds

from inference import fit
from inference.alignment import align
from inference.programs import Program
from inference.uncertainty import standard_errors
from ppl_models import (
    Bernoulli,
    Categorical,
    DeepDiscreteEncoder,
    HiddenMarkov,
    LatentAttributeModel,
    Mixture,
    MultivariateNormal,
    NoisyOr,
    Normal,
    Ordinal,
)

GRAPH = ((1, 0), (1, 0), (1, 0), (1, 0), (0, 1), (0, 1), (0, 1), (0, 1))


def tensor(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


SKILLS = ((1, 0), (0, 1)) * 5 + ((1, 1),) * 4
PAIR = {
    "dina": [[0.0, 0.0, 3.0]],
    "gdm": [[0.8, 0.6, 1.6]],
    "acdm": [[-0.2, 0.3, 0.0]],
    "additive": [[1.5, 2.0]],
}  # loadings of an item with both skills


def attributes(rule: str) -> tuple[LatentAttributeModel, dict[str, torch.Tensor]]:
    """Ten items with one of two skills, four with both; most rows have both skills or none."""
    pair = tensor(PAIR[rule])
    singles = torch.nn.functional.pad(
        2.6 * torch.eye(2, dtype=torch.float64), (0, 0 if rule == "additive" else 1)
    ).repeat(5, 1)
    intercepts = tensor([-1.3] * 10 + [-1.0 if rule == "acdm" else -1.6] * 4)
    truth = {
        "profiles": tensor([0.35, 0.15, 0.15, 0.35]),
        "loadings": torch.cat([singles, pair.expand(4, -1)]),
        "intercepts": intercepts,
    }
    return LatentAttributeModel(SKILLS, items=rule), truth


LOW, HIGH = math.log(0.2 / 0.8), math.log(0.8 / 0.2)
TRUTHS = {
    "encoder, graph given": (
        DeepDiscreteEncoder(8, (2,), graphs=(GRAPH,)),
        {
            "proportions": tensor([0.4, 0.6]),
            "loadings_1": 2.5 * tensor(GRAPH),
            "intercepts_1": torch.full((8,), -1.25, dtype=torch.float64),
        },
    ),
    "encoder, graded response": (
        DeepDiscreteEncoder(8, (2,), Ordinal(4), graphs=(GRAPH,)),
        {
            "proportions": tensor([0.4, 0.6]),
            "loadings_1": 2.0 * tensor(GRAPH),
            "intercepts_1": tensor([0.0] * 8),
            "thresholds": tensor([1.0, 1.5] * 8),
        },
    ),
    "encoder, partial credit": (
        DeepDiscreteEncoder(8, (2,), Ordinal(4, link="adjacent"), graphs=(GRAPH,)),
        {
            "proportions": tensor([0.4, 0.6]),
            "loadings_1": 1.2 * tensor(GRAPH),
            "intercepts_1": tensor([0.0] * 8),
            "thresholds": tensor([0.5, 1.0] * 8),
        },
    ),
    "encoder, categories": (
        DeepDiscreteEncoder(8, (2,), Categorical(3), graphs=(GRAPH,)),
        {
            "proportions": tensor([0.4, 0.6]),
            "loadings_1": tensor([[2.0], [1.0]]).repeat(8, 2)
            * tensor(GRAPH).repeat_interleave(2, 0),
            "intercepts_1": tensor([-0.5, 0.0] * 8),
        },
    ),
    "mixture, Bernoulli": (
        Mixture(2, Bernoulli(), 8),
        {"weights": tensor([0.6, 0.4]), "predictors": tensor([[LOW] * 8, [HIGH] * 6 + [LOW] * 2])},
    ),
    "mixture, Normal": (
        Mixture(2, Normal(), 3),
        {
            "weights": tensor([0.6, 0.4]),
            "predictors": tensor([[0.0, 0.0, 0.0], [2.5, 2.0, -2.0]]),
            "dispersion": tensor([[1.0] * 3, [1.5] * 3]),
        },
    ),
    "normal": (
        Mixture(1, Normal(), 3),
        {
            "weights": tensor([1.0]),
            "predictors": tensor([[0.0, 1.0, -1.0]]),
            "dispersion": tensor([[1.0, 2.0, 0.5]]),
        },
    ),
    "mixture, Normal apart": (
        Mixture(2, Normal(), 3),
        {
            "weights": tensor([0.6, 0.4]),
            "predictors": tensor([[0.0, 0.0, 0.0], [6.0, 6.0, -6.0]]),
            "dispersion": tensor([[1.0] * 3, [1.5] * 3]),
        },
    ),
    "mixture, MultivariateNormal": (
        Mixture(2, MultivariateNormal(), 2),
        {
            "weights": tensor([0.6, 0.4]),
            "means": tensor([[0.0, 0.0], [5.0, 5.0]]),
            "precisions": tensor([[[1.0, 0.4], [0.4, 2.0]], [[2.0, -0.9], [-0.9, 1.0]]]),
        },
    ),
    "hidden Markov, Normal": (
        HiddenMarkov(2, Normal(), 3, initial="stationary", num_steps=20),
        {
            "transitions": tensor([[0.7, 0.3], [0.4, 0.6]]),
            "predictors": tensor([[0.0, 0.0, 0.0], [4.0, 3.0, -3.0]]),
            "dispersion": tensor([[1.0] * 3, [1.5] * 3]),
        },
    ),
    "encoder, Normal": (
        DeepDiscreteEncoder(8, (2,), Normal(), graphs=(GRAPH,)),
        {
            "proportions": tensor([0.4, 0.6]),
            "loadings_1": 2.5 * tensor(GRAPH),
            "intercepts_1": tensor([-1.0] * 8),
            "dispersion": tensor([0.8, 1.2] * 4),
        },
    ),
    "attributes, Normal": (
        LatentAttributeModel(SKILLS, Normal(), items="gdm"),
        {**attributes("gdm")[1], "dispersion": tensor([1.0] * 14)},
    ),
    **{f"attributes, {rule}": attributes(rule) for rule in PAIR},
    "noisy-or": (
        NoisyOr(8, 2),
        {
            "prior": tensor([0.45, 0.3]),
            "failure": tensor([[0.2] * 4 + [1.0] * 4, [1.0] * 4 + [0.25] * 4]),
            "leak": torch.full((8,), 0.1, dtype=torch.float64),
        },
    ),
}


def at_its_bound(site: str, truth: torch.Tensor) -> torch.Tensor:
    """Entries whose true value has no neighbourhood: loadings off the graph or that are zero,
    failures of edges that are not there.
    """
    return truth == {"loadings_1": 0.0, "loadings": 0.0, "failure": 1.0}.get(site, math.nan)


def measure(args: argparse.Namespace) -> Lines:
    for family in args.family:
        model, truth = TRUTHS[family]
        began = time.monotonic()
        shares: dict[str, list[float]] = {site: [] for site in truth}
        by_normal: dict[str, list[float]] = {site: [] for site in truth}
        widths: dict[str, list[float]] = {site: [] for site in truth}
        chain = isinstance(model, HiddenMarkov)
        held, entries, refused = 0, 0, Counter[str]()
        for seed in seeds(args):
            data = Program(model, None, args.rows // getattr(model, "num_steps", 1)).simulate(
                truth, seed
            )["sequences" if chain else "items"]
            plain = fit(model, data, seed=seed)
            own = (
                plain
                if isinstance(model, LatentAttributeModel)
                else replace(plain, params=align(plain, truth).params)
            )
            try:
                errors = standard_errors(own, data, hold_bounds=True)
            except ValueError as reason:
                refused[
                    str(reason).split(":")[1].strip()[:60] if ":" in str(reason) else str(reason)
                ] += 1
                continue
            limits, plainly = errors.intervals(), replace(errors, scales=None).intervals()
            for site, value in truth.items():
                low, high = limits[site]
                asked = ~at_its_bound(site, value)
                known = asked & ~low.isnan() & ~high.isnan()
                held, entries = held + int((asked & ~known).sum()), entries + int(asked.sum())
                if bool(known.any()):
                    shares[site].append(
                        float(((low <= value) & (value <= high))[known].double().mean())
                    )
                    below, above = plainly[site]
                    by_normal[site].append(
                        float(((below <= value) & (value <= above))[known].double().mean())
                    )
                    widths[site].append(float((high - low)[known].mean()))
        line = {
            "family": family,
            "rows": args.rows,
            "replicates": args.replicates,
            "refused": dict(refused),
        }
        line |= {
            "held": round(held / max(1, entries), 4),
            "seconds": round(time.monotonic() - began, 1),
        }
        line["coverage"] = {
            site: round(sum(own) / len(own), 4) if own else None for site, own in shares.items()
        }
        line["coverage_se"] = {
            site: (
                round(float(torch.tensor(own).std() / len(own) ** 0.5), 4) if len(own) > 1 else None
            )
            for site, own in shares.items()
        }
        line["by_normal"] = {
            site: round(sum(own) / len(own), 4) if own else None for site, own in by_normal.items()
        }
        line["mean_width"] = {
            site: round(sum(own) / len(own), 3) if own else None for site, own in widths.items()
        }
        yield line


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=100)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--family", nargs="+", default=list(TRUTHS), choices=list(TRUTHS))
    run(parser, measure, argv, {"replicates": 2})


if __name__ == "__main__":
    main()
