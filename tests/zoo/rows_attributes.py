"""Rows of the zoo's table for latent attribute models: one for each distribution of the attributes
and each rule of the items.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from scipy.special import expit, logit, logsumexp
from zoo.rows_encoder_categories import Item, log_mass
from zoo.rows_encoder_covariates import KNOWN
from zoo.rows_measurement import DISTRIBUTIONS

from ppl_models import (
    Bernoulli,
    Blocks,
    Categorical,
    Dag,
    Hierarchy,
    HigherOrder,
    Independent,
    LatentAttributeModel,
    NegativeBinomial,
    Normal,
    Ordinal,
    Poisson,
    Saturated,
)

Params = Mapping[str, np.ndarray]
Profile = tuple[int, ...]
PURE = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
SMALL = (*PURE, (1, 1, 0), (0, 1, 1))
LONG = (*PURE, *PURE, *PURE, (1, 1, 0), (0, 1, 1), (1, 0, 1))
ALL = tuple(itertools.product((0, 1), repeat=3))
DISPERSED = ("Normal", "NegativeBinomial")
CHAIN = [profile for profile in ALL if profile[0] >= profile[1] >= profile[2]]
PARENTS = ((), (0,), (0, 1))


def of_table(profiles: list[Profile], params: Params, profile: Profile) -> float:
    return (
        float(np.log(params["profiles"][profiles.index(profile)]))
        if profile in profiles
        else -np.inf
    )


def of_proportions(params: Params, profile: Profile) -> float:
    return float(
        sum(
            np.log(p if bit else 1 - p)
            for p, bit in zip(params["proportions"], profile, strict=True)
        )
    )


def of_network(params: Params, profile: Profile) -> float:
    """The tables of the attributes stand one after another: 1, 2 and 4 entries."""
    total, first = 0.0, 0
    for k, parents in enumerate(PARENTS):
        state = int("".join(str(profile[parent]) for parent in parents) or "0", 2)
        chance = params["conditionals"][first + state]
        total += float(np.log(chance if profile[k] else 1 - chance))
        first += 2 ** len(parents)
    return total


def of_trait(params: Params, profile: Profile) -> float:
    """The sum over the nodes, with the quadrature in its other form, for the weight exp(-x^2)."""
    nodes, weights = np.polynomial.hermite.hermgauss(31)
    total = 0.0
    for node, weight in zip(nodes, weights, strict=True):
        chances = expit(params["trait_intercepts"] + params["trait_slopes"] * node * np.sqrt(2))
        total += (
            weight
            / np.sqrt(np.pi)
            * np.prod([c if bit else 1 - c for c, bit in zip(chances, profile, strict=True)])
        )
    return float(np.log(total))


def additive_chance(b: float, weights: list[float], has: list[int]) -> float:
    """Shares of the whole chance: of those who have nothing, of each attribute, and of nobody."""
    shares = np.exp([b, *weights, 0.0])
    return float((shares[0] + shares[1:-1] @ np.array(has)) / shares.sum())


def reduced_chance(b: float, weights: list[float], has: list[int]) -> float:
    """A chance for those who have all, times a factor for each attribute that is lacking."""
    return float(
        expit(b)
        * np.prod([1.0 if bit else 1 - expit(w) for w, bit in zip(weights, has, strict=True)])
    )


CURVES = {"acdm": additive_chance, "rrum": reduced_chance}


def features_by_hand(
    rule: str, own: tuple[int, ...]
) -> dict[tuple[tuple[int, ...], bool], Callable[[Profile], float]]:
    """The features of an item that asks for the attributes ``own``: (members, whether any is
    enough) -> value.
    """
    if rule == "dina":
        return {(own, False): lambda a: float(all(a[k] for k in own))}
    if rule == "dino":
        return {(own, len(own) > 1): lambda a: float(any(a[k] for k in own))}
    sizes = (1,) if rule == "additive" else range(1, len(own) + 1)
    subsets = [subset for size in sizes for subset in itertools.combinations(own, size)]
    return {
        (subset, False): lambda a, subset=subset: float(np.prod([a[k] for k in subset]))
        for subset in subsets
    }  # type: ignore[misc]


def used_by_hand(rules: tuple[str, ...], graph: tuple[Profile, ...]) -> tuple[list[Any], list[Any]]:
    """The features of each item, and the columns of the loadings: by size, members, products
    first.
    """
    used = [
        features_by_hand(rule, tuple(k for k in range(3) if row[k]))
        for rule, row in zip(rules, graph, strict=True)
    ]
    return used, sorted(
        {term for own in used for term in own}, key=lambda term: (len(term[0]), *term)
    )


def log_likelihood(
    columns: tuple[str, ...],
    rules: tuple[str, ...],
    graph: tuple[Profile, ...],
    distribution: Callable[[Params, Profile], float],
    params: Params,
    data: np.ndarray,
) -> np.ndarray:
    used, every = used_by_hand(rules, graph)
    terms = []
    for profile in ALL:
        rows, dispersed = np.full(len(data), distribution(params, profile)), 0
        for j, family in enumerate(columns):
            own = [k for k in range(3) if graph[j][k]]
            if rules[j] in CURVES and len(own) > 1:
                singles = [params["loadings"][j, every.index(((k,), False))] for k in own]
                eta = logit(
                    CURVES[rules[j]](params["intercepts"][j], singles, [profile[k] for k in own])
                )
            else:
                eta = params["intercepts"][j] + sum(
                    params["loadings"][j, every.index(t)] * value(profile)
                    for t, value in used[j].items()
                )
            gamma = params["dispersion"][dispersed] if family in DISPERSED else None
            dispersed += family in DISPERSED
            seen = ~np.isnan(data[:, j])
            rows[seen] += DISTRIBUTIONS[family](data[seen, j], eta, gamma)
        terms.append(rows)
    return logsumexp(terms, axis=0)


def log_likelihood_of_categories(
    items: tuple[Item, ...],
    rules: tuple[str, ...],
    graph: tuple[Profile, ...],
    distribution: Callable[[Params, Profile], float],
    params: Params,
    data: np.ndarray,
) -> np.ndarray:
    """The same of items that are categories: an item without an order has a row of intercepts and
    loadings for each category but the first.
    """
    used, every = used_by_hand(rules, graph)
    terms = []
    for profile in ALL:
        rows, row, gap = np.full(len(data), distribution(params, profile)), 0, 0
        for j, item in enumerate(items):
            eta = np.array(
                [
                    params["intercepts"][i]
                    + sum(
                        params["loadings"][i, every.index(t)] * value(profile)
                        for t, value in used[j].items()
                    )
                    for i in range(row, row + item.num_linear)
                ]
            )
            gaps = params["thresholds"][gap : gap + item.num_gaps] if item.num_gaps else np.zeros(0)
            seen = ~np.isnan(data[:, j])
            rows[seen] += log_mass(item, data[seen, j], eta, gaps, None)
            row, gap = row + item.num_linear, gap + item.num_gaps
        terms.append(rows)
    return logsumexp(terms, axis=0)


def log_likelihood_given(
    items: tuple[Item, ...],
    rules: tuple[str, ...],
    graph: tuple[Profile, ...],
    params: Params,
    data: np.ndarray,
) -> np.ndarray:
    """Row by row, the chances of the attributes by the covariates behind the items."""
    out = []
    for row in data:
        chances = expit(
            params["coefficients"] @ np.array([1.0, row[len(items)], row[len(items) + 1] == 1])
        )
        own = {**params, "proportions": chances}
        out.append(
            log_likelihood_of_categories(
                items, rules, graph, of_proportions, own, row[None, : len(items)]
            )[0]
        )
    return np.array(out)


def rows_beside(items: tuple[Item, ...], missing: float, num_rows: int, seed: int) -> torch.Tensor:
    """Answers of any kind with gaps, a number and one of two categories behind them."""
    rng = np.random.default_rng(seed)
    given = np.stack([rng.normal(1.0, 1.5, num_rows).round(1), rng.integers(0, 2, num_rows)], 1)
    table = np.stack([rng.integers(0, max(2, item.size), num_rows) for item in items], 1).astype(
        float
    )
    gone = rng.random(table.shape) < missing
    gone[np.arange(num_rows), np.arange(num_rows) % len(items)] = False
    return torch.from_numpy(np.concatenate([np.where(gone, np.nan, table), given], 1))


def rows_of_categories(make: Callable[..., Any]) -> list[Any]:
    """Items in an order and in none beside right-wrong ones; with covariates; and one that finds
    the truth.
    """
    f64 = torch.float64
    mixed = (
        Item("cumulative", 3),
        Item("adjacent", 4),
        Item("nominal", 3),
        Item("cumulative", 4),
        Item("nominal", 3),
        Item("Bernoulli"),
    )
    beside = Blocks(
        (Ordinal(3), 1),
        (Ordinal(4, link="adjacent"), 1),
        (Categorical(3), 1),
        (Ordinal(4), 1),
        (Categorical(3), 1),
        (Bernoulli(), 1),
    )
    several, asked = ("additive", "dina", "gdm", "dino", "gdm", "dina"), (*SMALL, (1, 0, 1))
    table = {"profiles": torch.tensor([0.2, 0.1, 0.08, 0.12, 0.05, 0.15, 0.1, 0.2], dtype=f64)}
    slopes = {
        "coefficients": torch.tensor(
            [[-0.9, 0.8, 1.0], [0.7, -0.6, 0.4], [0.2, 0.5, -0.8]], dtype=f64
        )
    }
    designs = [
        ("attributes-categories", mixed, beside, several, asked, table, None, None, 1.2),
        (
            "attributes-categories-covariates",
            mixed,
            beside,
            several,
            asked,
            slopes,
            KNOWN,
            None,
            1.2,
        ),
        (
            "attributes-recovers-Ordinal",
            (Item("cumulative", 3),) * 12,
            Ordinal(3),
            ("dina",) * 12,
            LONG,
            table,
            None,
            2000,
            3.5,
        ),
    ]
    rows = []
    for seed, (
        name,
        items,
        response,
        rules,
        q_matrix,
        root_params,
        given,
        recovery,
        effect,
    ) in enumerate(designs):
        generator = torch.Generator().manual_seed(100 + seed)
        used, every = used_by_hand(rules, q_matrix)
        of_row = [j for j, item in enumerate(items) for _ in range(item.num_linear)]
        weights = torch.tensor(
            [[1.0 / len(t[0]) if t in used[j] else 0.0 for t in every] for j in of_row], dtype=f64
        )
        loadings = (
            effect
            * (0.8 + 0.4 * torch.rand(*weights.shape, generator=generator, dtype=f64))
            * weights
            / weights.sum(-1, keepdim=True)
        )
        truth = root_params | {
            "loadings": loadings,
            "intercepts": (
                0.2 * torch.randn(len(of_row), generator=generator, dtype=f64)
                - loadings.sum(-1) / 2
            ),
        }
        truth["thresholds"] = 0.5 + torch.rand(
            sum(item.num_gaps for item in items), generator=generator, dtype=f64
        )
        width = len(items) + (0 if given is None else 2)
        shapes = {site: tuple(value.shape) for site, value in truth.items()} | {
            "attributes": (3,),
            "items": (width,),
        }
        root: Any = Saturated() if given is None else Independent()
        model = LatentAttributeModel(
            q_matrix, response, rules if len(set(rules)) > 1 else rules[0], root, covariates=given
        )
        by_hand: Any = partial(
            log_likelihood_of_categories, items, rules, q_matrix, partial(of_table, list(ALL))
        )
        data = None
        if given is not None:
            by_hand, data = (
                partial(log_likelihood_given, items, rules, q_matrix),
                partial(rows_beside, items, 0.2),
            )
        rows.append(
            make(
                name,
                model,
                truth,
                shapes,
                by_hand,
                missing=0.0 if recovery else 0.2,
                recovery_rows=recovery,
                data=data,
            )
        )
    return rows


def attribute_rows(make: Callable[..., Any]) -> list[Any]:
    """Rows, made by the table's own record type."""
    f64 = torch.float64
    table = torch.tensor([0.2, 0.1, 0.08, 0.12, 0.05, 0.15, 0.1, 0.2], dtype=f64)
    blocks = Blocks((Bernoulli(), 2), (Normal(), 1), (Poisson(), 1), (Normal(), 1))
    mixed = ("Bernoulli", "Bernoulli", "Normal", "Poisson", "Normal")
    chain = {"profiles": torch.tensor([0.3, 0.2, 0.15, 0.35], dtype=f64)}
    network = {"conditionals": torch.tensor([0.55, 0.25, 0.7, 0.3, 0.6, 0.4, 0.8], dtype=f64)}
    trait = {
        "trait_slopes": torch.tensor([1.5, 1.0, 0.8], dtype=f64),
        "trait_intercepts": torch.tensor([0.3, -0.4, 0.1], dtype=f64),
    }
    saturated = ({"profiles": table}, Saturated(), partial(of_table, list(ALL)))
    graph = (network, Dag(((0, 1), (0, 2), (1, 2))), of_network)
    distributions = {
        "saturated": saturated,
        "estimated": saturated,
        "saturated-prior": ({"profiles": table}, Saturated(concentration=1.5), saturated[2]),
        "independent": (
            {"proportions": torch.tensor([0.4, 0.6, 0.5], dtype=f64)},
            Independent(),
            of_proportions,
        ),
        "hierarchy": (chain, Hierarchy(((0, 1), (1, 2))), partial(of_table, CHAIN)),
        "dag": graph,
        "trait": (trait, HigherOrder(), of_trait),
    }
    several = ("additive", "dina", "gdm", "dino", "gdm")
    designs = [
        # distribution, columns, family, rules, graph, missing, recovery rows, size of an effect
        ("saturated", ("Normal",) * 5, Normal(), ("additive",) * 5, SMALL, 0.25, None, 1.5),
        ("saturated-prior", ("Poisson",) * 5, Poisson(), ("dina",) * 5, SMALL, 0.0, None, 1.0),
        ("independent", mixed, blocks, several, SMALL, 0.2, None, 1.0),
        ("hierarchy", ("Bernoulli",) * 5, Bernoulli(), ("dina",) * 5, SMALL, 0.0, None, 1.0),
        ("dag", ("Poisson",) * 5, Poisson(), ("dino",) * 5, SMALL, 0.25, None, 1.0),
        ("trait", ("Bernoulli",) * 5, Bernoulli(), ("gdm",) * 5, SMALL, 0.0, None, 1.0),
        (
            "saturated",
            ("Bernoulli",) * 5,
            Bernoulli(),
            ("acdm", "rrum", "gdm", "acdm", "rrum"),
            SMALL,
            0.2,
            None,
            1.0,
        ),
        (
            "saturated",
            ("NegativeBinomial",) * 5,
            NegativeBinomial(),
            ("gdm", "dina", "additive", "dino", "gdm"),
            SMALL,
            0.2,
            None,
            1.0,
        ),
        (
            "dag",
            ("Bernoulli",) * 12,
            Bernoulli(),
            ("acdm",) * 10 + ("rrum",) * 2,
            LONG,
            0.0,
            3000,
            3.5,
        ),
        ("saturated", ("Bernoulli",) * 12, Bernoulli(), ("additive",) * 12, LONG, 0.1, 2000, 3.5),
        ("hierarchy", ("Normal",) * 12, Normal(), ("additive",) * 12, LONG, 0.0, 800, 3.0),
        ("dag", ("Bernoulli",) * 12, Bernoulli(), ("dino",) * 12, LONG, 0.0, 2000, 3.5),
        ("trait", ("Normal",) * 12, Normal(), ("gdm",) * 6 + ("dina",) * 6, LONG, 0.0, 1500, 3.0),
        ("estimated", ("Normal",) * 5, Normal(), ("additive",) * 5, SMALL, 0.0, None, 1.5),
        (
            "hierarchy",
            ("Poisson",) * 7,
            Poisson(),
            ("gdm",) * 7,
            (*SMALL, (1, 0, 1), (1, 1, 1)),
            0.1,
            None,
            1.0,
        ),
    ]
    rows = []
    for seed, (
        distribution,
        columns,
        family,
        rules,
        q_matrix,
        missing,
        recovery,
        effect,
    ) in enumerate(designs):
        generator = torch.Generator().manual_seed(seed)
        own, root, density = distributions[distribution]
        used, every = used_by_hand(rules, q_matrix)
        weights = torch.tensor(
            [[1.0 / len(t[0]) if t in features else 0.0 for t in every] for features in used],
            dtype=f64,
        )
        if (
            distribution == "hierarchy"
        ):  # of profiles along a chain: an effect is nested in those of the attributes before
            nested = [
                [rule != "gdm" or all(k in t[0] for k in range(max(t[0])) if row[k]) for t in every]
                for rule, row in zip(rules, q_matrix, strict=True)
            ]
            weights = weights * torch.tensor(nested)
        noise = 0.8 + 0.4 * torch.rand(*weights.shape, generator=generator, dtype=f64)
        curved = torch.tensor(
            [rule in CURVES and len(f) > 1 for rule, f in zip(rules, used, strict=True)]
        ).unsqueeze(-1)
        weights = weights.masked_fill(curved & torch.tensor([len(t[0]) > 1 for t in every]), 0.0)
        loadings = effect * noise * weights / weights.sum(-1, keepdim=True)
        truth = own | {
            "loadings": loadings,
            "intercepts": (
                0.2 * torch.randn(len(columns), generator=generator, dtype=f64)
                - loadings.sum(-1) / 2
            ),
        }
        num_dispersed = sum(family in DISPERSED for family in columns)
        if num_dispersed:
            truth["dispersion"] = 0.5 + torch.rand(num_dispersed, generator=generator, dtype=f64)
        shapes = {name: tuple(value.shape) for name, value in truth.items()} | {
            "attributes": (3,),
            "items": (len(columns),),
        }
        rule = "-chances" if "acdm" in rules else ""
        recovers, kinds = "-recovers" if recovery else "", columns[0]
        name = (
            f"attributes-{distribution}{rule}{recovers}-{'Blocks' if columns is mixed else kinds}"
        )
        items = rules if len(set(rules)) > 1 else rules[0]
        model = LatentAttributeModel(
            q_matrix, family, items, root, q_estimated=distribution == "estimated"
        )  # type: ignore[arg-type]
        by_hand = partial(log_likelihood, columns, rules, q_matrix, density)  # type: ignore[arg-type]
        rows.append(
            make(name, model, truth, shapes, by_hand, missing=missing, recovery_rows=recovery)
        )
    return rows + rows_of_categories(make)
