"""Latent attribute models: speed against the number of attributes, what laws of attributes cost, classification, absolute fit.

JSON lines of four kinds. ``speed``: seconds of an EM iteration and of a whole fit (one start) of a DINA test with 60 items, against the number
of attributes. ``root``: log-likelihood, parameters and BIC of every law of the attributes on one test whose attributes depend on a trait.
``accuracy``: expected share of rows classified rightly beside the true share, a line a replicate. ``m2``: M2, its p-value and RMSEA2
under the right Q-matrix and under one with wrong entries, a line a replicate. Run: ``python benchmarks/attributes.py [--quick]``.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from _bench import Lines, command_line, fastest, run, seeds

from inference import EM, fit
from inference.inspection import classify_rows, limited_information_fit
from inference.structures.layers import LayeredSteps, spectral_start
from ppl_models import HigherOrder, Independent, LatentAttributeModel, Saturated
from ppl_models.datasets import mastery_test

ROOTS = (Saturated(), HigherOrder(), Independent())


def speed(num_items: int, num_attributes: int, num_rows: int) -> dict:
    design = mastery_test(num_items, num_attributes, seed=1)
    items, _ = design.draw(num_rows, seed=2)
    params = spectral_start(design.model.layers(), design.model.root_law(), items[:2000])
    steps = LayeredSteps.build(design.model, items, EM().chunk_elements, EM().num_inner)
    statistics = steps.e_step(params)[0]
    began = time.monotonic()
    result = fit(design.model, items, EM(), num_restarts=1)
    seconds = time.monotonic() - began
    return {
        "kind": "speed",
        "sizes": [num_items, num_attributes, num_rows],
        "seconds_fit": seconds,
        "seconds_e_step": fastest(lambda: steps.e_step(params), 3),
        "seconds_m_step": fastest(lambda: steps.m_step(statistics, params), 3),
        "num_iterations": result.num_iterations,
    }


def roots(num_items: int, num_attributes: int, num_rows: int, seed: int) -> Iterator[dict]:
    design = mastery_test(num_items, num_attributes, seed=seed)
    items, _ = design.draw(num_rows, seed=seed)
    for root in ROOTS:
        result = fit(replace(design.model, root=root), items, EM(tolerance=1e-7), num_restarts=2)
        yield {
            "kind": "root",
            "seed": seed,
            "root": type(root).__name__,
            "log_likelihood": result.log_likelihood,
            "num_parameters": result.num_parameters,
            "bic": result.bic,
        }


def accuracy(num_items: int, num_attributes: int, num_rows: int, rule: str, seed: int) -> dict:
    design = mastery_test(num_items, num_attributes, rule, seed=seed)
    items, attributes = design.draw(num_rows, seed=seed)
    found = classify_rows(fit(design.model, items, EM(tolerance=1e-7), num_restarts=2), items)
    truth = attributes.numpy()
    return {
        "kind": "accuracy",
        "seed": seed,
        "rule": rule,
        "expected": found.accuracy,
        "true": float((found.profiles == truth).all(1).mean()),
        "expected_by_attribute": found.attribute_accuracy.tolist(),
        "true_by_attribute": ((found.probabilities > 0.5) == truth).mean(0).tolist(),
    }


def absolute_fit(num_items: int, num_attributes: int, num_rows: int, share: float, seed: int) -> Iterator[dict]:
    design = mastery_test(num_items, num_attributes, seed=1)
    items, _ = design.draw(num_rows, seed=seed)
    matrix = torch.tensor(design.model.q_matrix)
    generator = torch.Generator().manual_seed(seed)
    wrong = matrix.clone()
    rest = matrix[2 * num_attributes :]  # items with several attributes: half of the wrong entries are left out, half put in
    turned = torch.rand(rest.shape, generator=generator) < share
    changed = torch.where(turned, 1 - rest, rest)
    wrong[2 * num_attributes :] = torch.where(changed.sum(-1, keepdim=True) > 0, changed, rest)
    for name, used in (("right", matrix), ("wrong", wrong)):
        model = LatentAttributeModel(used, items="dina", root=HigherOrder())
        found = limited_information_fit(fit(model, items, EM(tolerance=1e-7), num_restarts=2), items)
        yield {
            "kind": "m2",
            "seed": seed,
            "q_matrix": name,
            "num_wrong": int((used != matrix).sum()),
            "m2": found.m2,
            "degrees": found.degrees,
            "p_value": found.p_value,
            "rmsea2": found.rmsea2,
            "srmsr": found.srmsr,
        }


def measure(args: argparse.Namespace) -> Lines:
    warnings.simplefilter("ignore")
    for num_attributes in args.attributes:
        yield speed(args.items * 2, num_attributes, args.rows * 10)
    for seed in seeds(args):
        yield from roots(args.items, args.skills, args.rows, seed)
        for rule in ("dina", "additive"):
            yield accuracy(args.items, args.skills, args.rows, rule, seed)
        yield from absolute_fit(args.items, args.skills, args.rows, args.wrong, seed)


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=100)
    parser.add_argument("--attributes", type=int, nargs="+", default=[4, 6, 8, 10], help="numbers of attributes that are timed")
    parser.add_argument("--items", type=int, default=30, help="items of the replicates; twice as many are timed")
    parser.add_argument("--skills", type=int, default=5, help="attributes of the replicates")
    parser.add_argument("--rows", type=int, default=1000, help="rows of the replicates; ten times as many are timed")
    parser.add_argument("--wrong", type=float, default=0.15, help="share of wrong entries in the Q-matrix of items with several attributes")
    run(parser, measure, argv, quick={"attributes": [3], "items": 12, "skills": 3, "rows": 200, "replicates": 1})


if __name__ == "__main__":
    main()
