"""Latent attribute models: what fit statistics and tests are worth, classification, distributions
of attributes, and speed against the number of attributes.

One JSON line a cell, over its replicates (data sets of ``--rows`` rows of a test whose attributes
depend on a trait). ``fit``: by the size of the test, and under the right Q-matrix and one with
``--wrong`` of its entries turned, the shares of data sets that M2 rejects, of items that item fit
rejects (residuals by attribute, and S-X2) and of pairs that residuals and Pearson's statistic
reject, at 5 %; under the wrong Q apart for items whose row is wrong and for the others. ``rules``:
by the true rule of the items, how often the Wald test rejects it and each other rule, and which
rules are suggested. ``accuracy``: the expected and the true share of rows classified rightly, and
``gap_of_posterior``, that of the posterior alone. ``intervals``: how often 95 % intervals of
expected answers hold the truth. ``root``: log-likelihood, parameters and BIC of distributions of
attributes on one data set. ``speed``: seconds of an EM iteration and of a whole fit (one start)
with twice the items and ten times the rows; SAEM where attributes are too many for a table. Run:
``python benchmarks/attributes.py [--quick]``.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from _bench import Lines, command_line, fastest, run, seeds, timed

from inference import EM, SAEM, Fit, fit
from inference.inspection import (
    classify_rows,
    item_curves,
    item_fit,
    item_rules,
    limited_information_fit,
    local_dependence,
)
from inference.programs.program import Program
from inference.structures.layers.em_steps import LayeredSteps
from inference.structures.layers.spectral import spectral_start
from ppl_models import HigherOrder, Independent, LatentAttributeModel, Saturated
from ppl_models.datasets import mastery_test

ROOTS = (Saturated(), HigherOrder(), Independent())
METHOD = EM(tolerance=1e-7)
LEVEL = 0.05
Rates = defaultdict[str, list[float]]


def rejected(p_values: np.ndarray) -> float:
    """Share of the p-values below 5 %, those that there are."""
    return float(np.mean(p_values[~np.isnan(p_values)] < LEVEL))


def means(rates: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {
        name: round(float(np.nanmean(values)), 4) if not np.isnan(values).all() else float("nan")
        for name, values in rates.items()
    }


def turned(matrix: torch.Tensor, num_kept: int, share: float, seed: int) -> torch.Tensor:
    """A Q-matrix with a share of its entries turned, in items after the first ``num_kept``; no row
    is left empty.
    """
    generator = torch.Generator().manual_seed(seed)
    rest = matrix[num_kept:]
    changed = torch.where(torch.rand(rest.shape, generator=generator) < share, 1 - rest, rest)
    return torch.cat(
        [matrix[:num_kept], torch.where(changed.sum(-1, keepdim=True) > 0, changed, rest)]
    )


def judge(rates: Rates, result: Fit, items: torch.Tensor, wrong: np.ndarray) -> None:
    """Add what the statistics say of one fit."""
    m2 = limited_information_fit(result, items)
    rates["m2"].append(m2.p_value < LEVEL)
    rates["rmsea2"].append(m2.rmsea2)
    rates["srmsr"].append(m2.srmsr)
    for name, how in (("item", "attributes"), ("s_x2", "score")):
        found = item_fit(result, items, how)
        rates[f"{name}_right_rows"].append(rejected(found.p_value[~wrong]))
        rates[f"{name}_any_holm"].append(bool(found.misfitting))
        if wrong.any():
            rates[f"{name}_wrong_rows"].append(rejected(found.p_value[wrong]))
    pairs = local_dependence(result, items)
    rates["pair"].append(rejected(pairs.p_value))
    rates["pair_any_holm"].append(bool(pairs.dependent))
    rates["pair_x2"].append(float(np.mean(pairs.x2 > 3.8415)))
    rates["q3_mean"].append(float(pairs.q3.mean()))


def absolute_fit(num_items: int, num_attributes: int, args: argparse.Namespace) -> Iterator[dict]:
    design = mastery_test(num_items, num_attributes, seed=1)
    matrix = torch.tensor(design.model.q_matrix)
    right, wrong = Rates(list), Rates(list)
    for seed in seeds(args):
        items, _ = design.draw(args.rows, seed=seed)
        other = turned(matrix, 2 * num_attributes, args.wrong, seed)
        for rates, used in ((right, matrix), (wrong, other)):
            result = fit(
                LatentAttributeModel(used, items="dina", root=HigherOrder()),
                items,
                METHOD,
                num_restarts=1,
            )
            judge(rates, result, items, (used != matrix).any(1).numpy())
        wrong["num_wrong_entries"].append(int((other != matrix).sum()))
    for name, rates in (("right", right), ("wrong", wrong)):
        yield {
            "kind": "fit",
            "items": num_items,
            "attributes": num_attributes,
            "rows": args.rows,
            "q_matrix": name,
            "replicates": args.replicates,
        } | means(rates)


def rules(rule: str, num_items: int, num_attributes: int, args: argparse.Namespace) -> dict:
    design = mastery_test(num_items, num_attributes, rule, seed=1)
    rates, chosen = Rates(list), Counter[str]()
    for seed in seeds(args):
        items, _ = design.draw(args.rows, seed=seed)
        found = item_rules(
            fit(
                replace(design.model, items="saturated", root=HigherOrder()),
                items,
                METHOD,
                num_restarts=1,
            ),
            items,
        )
        for tested in dict.fromkeys(test.rule for test in found.tests):
            rates[tested].append(
                rejected(np.array([test.p_value for test in found.tests if test.rule == tested]))
            )
        chosen.update(
            name
            for name, row in zip(found.rules, design.model.q_matrix, strict=True)
            if sum(row) > 1
        )
    total = sum(chosen.values())
    shares = {name: round(count / total, 4) for name, count in chosen.most_common()}
    sizes = {
        "items": num_items,
        "attributes": num_attributes,
        "rows": args.rows,
        "replicates": args.replicates,
    }
    return {"kind": "rules", "true": rule, **sizes, "rejected": means(rates), "chosen": shares}


def accuracy(
    rule: str, num_items: int, num_attributes: int, args: argparse.Namespace
) -> Iterator[dict]:
    design = mastery_test(num_items, num_attributes, rule, seed=1)
    profiles = torch.cartesian_prod(
        *[torch.tensor([0.0, 1.0], dtype=torch.float64)] * num_attributes
    )
    truth = design.model.expected_responses(design.params, profiles)
    expected, true, rates = [], [], Rates(list)
    for seed in seeds(args):
        items, attributes = design.draw(args.rows, seed=seed)
        result = fit(replace(design.model, root=HigherOrder()), items, METHOD, num_restarts=1)
        found, own = classify_rows(result, items), attributes.numpy()
        expected.append([found.accuracy, *found.attribute_accuracy])
        true.append(
            [(found.profiles == own).all(1).mean(), *((found.probabilities > 0.5) == own).mean(0)]
        )
        again = design.draw(args.rows, seed=100_000 + seed)[
            1
        ].numpy()  # who has whose profile by chance alone
        rates["posterior"].append(float(found.profile_probability.mean()))
        rates["by_chance"].append(float((again == own).all(1).mean()))
        curves = item_curves(result, items)
        exact = np.array(
            [
                truth[place_of(design.model.q_matrix[j], curves.profiles[i]), j]
                for i, j in enumerate(curves.item)
            ]
        )
        inside = (curves.low <= exact) & (exact <= curves.high)
        rates["held"].append(float(inside[~np.isnan(curves.low)].mean()))
        rates["without_interval"].append(float(np.isnan(curves.low).mean()))
    sizes = {
        "rule": rule,
        "items": num_items,
        "attributes": num_attributes,
        "rows": args.rows,
        "replicates": args.replicates,
    }
    gap = np.array(expected).mean(0) - np.array(true).mean(0)
    yield {
        "kind": "accuracy",
        **sizes,
        "expected": round(float(np.mean(expected, 0)[0]), 4),
        "true": round(float(np.mean(true, 0)[0]), 4),
        "by_chance": means(rates)["by_chance"],
        "gap": round(float(gap[0]), 4),
        "gap_of_posterior": round(means(rates)["posterior"] - float(np.array(true).mean(0)[0]), 4),
        "largest_gap_of_an_attribute": round(float(np.abs(gap[1:]).max()), 4),
    }
    yield {
        "kind": "intervals",
        **sizes,
        "level": 0.95,
        "held": means(rates)["held"],
        "without_interval": means(rates)["without_interval"],
    }


def place_of(row: Sequence[int], present: Sequence[str]) -> int:
    """The profile with these attributes, named by number, and no other."""
    size = len(row)
    return sum(2 ** (size - 1 - int(name)) for name in present)


def roots(num_items: int, num_attributes: int, num_rows: int, seed: int) -> Iterator[dict]:
    design = mastery_test(num_items, num_attributes, seed=seed)
    items, _ = design.draw(num_rows, seed=seed)
    for root in ROOTS:
        result = fit(replace(design.model, root=root), items, METHOD, num_restarts=2)
        yield {
            "kind": "root",
            "seed": seed,
            "root": type(root).__name__,
            "log_likelihood": result.log_likelihood,
            "num_parameters": result.num_parameters,
            "bic": result.bic,
        }


def speed(num_items: int, num_attributes: int, num_rows: int) -> dict:
    design = mastery_test(num_items, num_attributes, seed=1)
    items, _ = design.draw(num_rows, seed=2)
    params = spectral_start(design.model.layers(), design.model.root_layer(), items[:2000])
    steps = LayeredSteps.build(design.model, items, EM().elements_at_once(items), EM().num_inner)
    statistics = steps.e_step(params)[0]
    result, seconds = timed(lambda: fit(design.model, items, EM(), num_restarts=1))
    return {
        "kind": "speed",
        "engine": "EM",
        "sizes": [num_items, num_attributes, num_rows],
        "seconds_fit": seconds,
        "seconds_e_step": fastest(lambda: steps.e_step(params), 3),
        "seconds_m_step": fastest(lambda: steps.m_step(statistics, params), 3),
        "num_iterations": result.num_iterations,
    }


def speed_beyond(num_items: int, num_attributes: int, num_rows: int) -> dict:
    """SAEM under a trait: twice one item for each attribute, the others ask for neighbours."""
    eye = torch.eye(num_attributes, dtype=torch.long)
    bands = torch.stack(
        [
            eye[k % num_attributes] | eye[(k + 1) % num_attributes]
            for k in range(max(0, num_items - 2 * num_attributes))
        ]
        or [eye[0]]
    )
    model = LatentAttributeModel(torch.cat([eye, eye, bands]), items="dina", root=HigherOrder())
    graph = model.layers()[0].graph
    truth: dict[str, Any] = {
        "trait_slopes": torch.full((num_attributes,), 1.5, dtype=torch.float64),
        "trait_intercepts": torch.linspace(1.0, -1.0, num_attributes, dtype=torch.float64),
        "loadings": 3.5 * graph.double(),
        "intercepts": torch.full((len(graph),), -1.75, dtype=torch.float64),
    }
    drawn = Program(model, None, num_rows).simulate(truth, 1)
    began = time.monotonic()
    result, seconds = timed(lambda: fit(model, drawn["items"], SAEM(), num_restarts=1))
    found = result.posterior_latents(drawn["items"][:500])["attributes"] > 0.5
    return {
        "kind": "speed",
        "engine": "SAEM",
        "sizes": [len(graph), num_attributes, num_rows],
        "seconds_fit": seconds,
        "seconds_all": round(time.monotonic() - began, 2),
        "num_iterations": result.num_iterations,
        "converged": result.converged,
        "attributes_right": round(
            float((found == drawn["attributes"][:500].bool()).double().mean()), 4
        ),
        "largest_error_of_a_loading": round(
            float((result.params["loadings"] - truth["loadings"]).abs().max()), 3
        ),
    }


def measure(args: argparse.Namespace) -> Lines:
    warnings.simplefilter("ignore")
    for num_items, num_attributes in zip(args.items, args.skills, strict=True):
        yield from absolute_fit(num_items, num_attributes, args)
    for rule in ("dina", "dino", "additive"):
        yield rules(rule, args.items[0], args.skills[0], args)
    for rule in ("dina", "additive"):
        yield from accuracy(rule, args.items[-1], args.skills[-1], args)
    yield from roots(args.items[-1], args.skills[-1], args.rows, args.first_seed)
    for num_attributes in args.attributes:
        yield speed(max(2 * args.items[-1], 2 * num_attributes), num_attributes, args.rows * 10)
    for num_attributes in args.beyond:
        yield speed_beyond(
            max(2 * args.items[-1], 2 * num_attributes), num_attributes, args.rows * 10
        )


def main(argv: Sequence[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, replicates=100)
    parser.add_argument(
        "--items",
        type=int,
        nargs="+",
        default=[20, 30],
        help="items of the tests; twice as many as the last are timed",
    )
    parser.add_argument(
        "--skills",
        type=int,
        nargs="+",
        default=[3, 5],
        help="attributes of the tests, one number for each of --items",
    )
    parser.add_argument(
        "--rows", type=int, default=1000, help="rows of the replicates; ten times as many are timed"
    )
    parser.add_argument(
        "--wrong",
        type=float,
        default=0.1,
        help="share of wrong entries in the Q-matrix, of the items after two for each attribute",
    )
    parser.add_argument(
        "--attributes",
        type=int,
        nargs="*",
        default=[4, 6, 8, 10],
        help="numbers of attributes that EM is timed with",
    )
    parser.add_argument(
        "--beyond",
        type=int,
        nargs="*",
        default=[20],
        help="numbers of attributes that SAEM is timed with",
    )
    run(
        parser,
        measure,
        argv,
        quick={
            "attributes": [3],
            "beyond": [4],
            "items": [12],
            "skills": [3],
            "rows": 200,
            "replicates": 2,
        },
    )


if __name__ == "__main__":
    main()
