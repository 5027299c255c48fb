r"""Items as tables over profiles: a light EM, and candidate attributes of one item.

Each item has a predictor for each profile, the same for profiles that its attributes and its rule
do not tell apart. With :math:`\varphi_{i\alpha} = P(\alpha \mid x_i)`, the M-step of an item is a
weighted mean of each group of profiles (of an additive item, a generalised linear model on the
profiles).

The candidates of item j are judged with everything else held: with :math:`\varphi^{-j}_{i\alpha}`,
the posterior without item j,

.. math::

    \ell_j(q) = \max_{\theta} \sum_i \log \sum_\alpha \varphi^{-j}_{i\alpha} \, f\{x_{ij} \mid
    \theta_{g_q(\alpha)}\},

where :math:`g_q` is the group of a profile under q. Up to a constant that is the log-likelihood of
all items as a function of those of item j, so that a gain of it is a gain of the whole model's.
What the item now asks for does not enter the posterior that it is judged by.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from inference.fitting.record import FitRecord
from inference.programs.program import Params
from inference.structures.layers.attributes import AttributeStructure
from inference.structures.layers.glm import maximise_rows
from ppl_models.descriptions.layers import Root
from ppl_models.parts.distributions import binary_configurations
from ppl_models.parts.responses import ResponseFamily, filled

RULES = ("saturated", "conjunctive", "disjunctive", "additive")
MAX_ITERATIONS = 200
TOLERANCE = 1e-2  # of the log-likelihood, in nats: criteria that differ by less are ties
MAX_CLIMB = 60  # iterations of one item
PILOT_RIDGE, LEAST_SHARE = 1e-3, 1e-6  # of the diagonal of squares
EDGE = 0.01  # of the range of an item, that means start within
EPSILON = 1e-5  # expected statistics keep so far from the ends of their range
TINY = 1e-300
LEAST_VARIANCE = 1e-6
MOST_VALUES = 12  # distinct answers whose densities are looked up


@dataclass(frozen=True)
class Answers:
    """The data, ready for use.

    Args:
        x: (N, J), a valid value where missing; statistic: T(x), (N, J), 0 where missing; seen: (N,
            J) of 0 and 1.
        family: of the items; blocks: of each item its elementary family, and its place in the
            dispersion, or -1.
        profiles: (C, K); root: their distribution.
    """

    x: Tensor
    statistic: Tensor
    seen: Tensor
    family: ResponseFamily
    blocks: tuple[tuple[ResponseFamily, int], ...]
    profiles: Tensor
    root: Root

    @classmethod
    def of(cls, structure: AttributeStructure, data: Tensor) -> Answers:
        """Data of a fit, ready for use."""
        layer, root = structure.layers[0], structure.root
        complete, mask = filled(layer.response, data.double())
        seen = torch.ones_like(complete) if mask is None else mask.double()
        parts = []
        for family, columns, part in layer.response.blocks(layer.num_children):
            none = [-1] * (columns.stop - columns.start)
            places = range(part.start, part.stop) if part.stop > part.start else none
            parts += [(family, place) for place in places]
        blocks = layer.response.blocks(layer.num_children)
        statistic = torch.cat([family.statistic(complete[:, c]) for family, c, _ in blocks], 1)
        if root.profiles is None:
            profiles = binary_configurations(layer.num_parents)
        else:
            profiles = root.profiles.double().cpu()
        return cls(complete, statistic * seen, seen, layer.response, tuple(parts), profiles, root)

    def rows(self, chosen: Tensor) -> Answers:
        """Subset of the rows."""
        return replace(
            self, x=self.x[chosen], statistic=self.statistic[chosen], seen=self.seen[chosen]
        )

    @property
    def num_items(self) -> int:
        """J."""
        return self.x.shape[1]


@dataclass(frozen=True)
class ItemTables:
    """An estimate.

    Args:
        q_matrix: bool (J, K); rules: of each item, one of ``RULES``.
        groups: (J, C) long, the group of each profile.
        eta: predictors, (J, C); dispersion: as the family has it, or None.
        root_params: parameters of the profiles' distribution, (1, ...).
        log_likelihood: of the items.
        posterior: of the profiles, (N, C).
    """

    q_matrix: Tensor
    rules: tuple[str, ...]
    groups: Tensor
    eta: Tensor
    dispersion: Tensor | None
    root_params: Params
    log_likelihood: float
    posterior: Tensor

    @property
    def num_free(self) -> int:
        """Free coefficients of the items, dispersions left out."""
        sizes = self.q_matrix.sum(1) + 1
        own = self.groups.amax(1) + 1
        each = zip(sizes.tolist(), own.tolist(), self.rules, strict=True)
        return sum(s if rule == "additive" else g for s, g, rule in each)

    def under(
        self, answers: Answers, q_matrix: Tensor, rules: Sequence[str] | None = None
    ) -> ItemTables:
        """The maximum under another Q, by EM from this estimate's posterior."""
        rules = self.rules if rules is None else tuple(rules)
        groups = _groups(answers, q_matrix, rules)
        return _climb(answers, replace(self, q_matrix=q_matrix, rules=rules, groups=groups))

    def without(self, answers: Answers, j: int, rows: Tensor) -> Tensor:
        """The posterior of the profiles without item j of some rows, (n, C)."""
        own = _log_density(answers, j, rows, self.eta[j], self.dispersion)
        logits = self.posterior[rows].clamp(min=TINY).log() - answers.seen[rows][:, [j]] * own
        return torch.softmax(logits, -1)


@dataclass(frozen=True, eq=False)
class Candidates:
    """Sets of attributes that an item may ask for, under one rule.

    Args:
        vectors: bool (M, K); rule: one of ``RULES``.
        groups: of each profile, (M, C) long.
        design: (M, C, 1 + K), a one and the attributes of the candidate, what additive items are
            linear in.
        num_free: coefficients of each, (M,).
    """

    vectors: Tensor
    rule: str
    groups: Tensor
    design: Tensor
    num_free: Tensor

    @classmethod
    def of(cls, vectors: Tensor, profiles: Tensor, rule: str) -> Candidates:
        """Candidates under a rule."""
        groups = torch.stack([groups_of(profiles, row, rule) for row in vectors])
        design = torch.nn.functional.pad(profiles * vectors.unsqueeze(1), (1, 0), value=1.0)
        num_free = vectors.sum(1) + 1 if rule == "additive" else groups.amax(1) + 1
        return cls(vectors, rule, groups, design, num_free)

    def screen(self, item: OneItem) -> Tensor:
        r"""Minus twice the log-likelihood of each candidate by weighted least squares, (M,).

        Up to one constant.

        The mean answer of row i is linear in the means of the groups, :math:`E t_i = \sum_\ell
        (\sum_{\alpha \in \ell} \varphi^{-j}_{i\alpha}) \mu_\ell`. An additive item is taken as
        additive in the means.
        """
        out = torch.empty(len(self.vectors), dtype=torch.float64)
        for place, basis in self._bases():
            inner = basis.mT @ item.squares @ basis
            right = basis.mT @ item.products
            diagonal = inner.diagonal(dim1=-2, dim2=-1)
            ridge = torch.diag_embed(torch.where(diagonal > 0, LEAST_SHARE * diagonal, 1.0))
            out[place] = -(right * torch.linalg.solve(inner + ridge, right)).sum((-2, -1))
        return out

    def _bases(self) -> list[tuple[Tensor, Tensor]]:
        """Numbers of candidates with as many coefficients, and their designs (M, C, d)."""
        if self.rule == "additive":
            return [(torch.arange(len(self.vectors)), self.design)]
        sizes = self.groups.amax(1) + 1
        out = []
        for size in sizes.unique().tolist():
            place = (sizes == size).nonzero().ravel()
            out.append((place, torch.nn.functional.one_hot(self.groups[place], size).double()))
        return out

    def log_likelihood(self, item: OneItem, m: int) -> float:
        """Log-likelihood of one candidate, all else held, up to one constant of the item."""
        size = int(self.groups[m].max()) + 1
        inside = torch.nn.functional.one_hot(self.groups[m], size).mT.double()  # (L, C)
        share = inside @ item.weights  # (L, n)
        columns = torch.nn.functional.pad(self.vectors[m], (1, 0), value=True)
        design = self.design[m][inside.argmax(1)][:, columns]
        inner = inside @ item.squares @ inside.mT
        start = torch.linalg.solve(
            inner + torch.diag(LEAST_SHARE * inner.diagonal() + TINY), inside @ item.products
        ).squeeze(-1)
        low, high = float(item.t.min()), float(item.t.max())
        edge = EDGE * (high - low)
        mean = start.clamp(low + edge, high - edge)
        gamma = item.gamma
        value = -math.inf
        for _ in range(MAX_CLIMB):
            before = value
            value, count, sums = item.expect(share, mean, gamma)
            if value - before < TOLERANCE / 2:
                break
            if self.rule == "additive":
                mean = self._additive(design, item, count, sums, mean)
            else:
                mean = sums / count.clamp(min=TINY)
            if gamma is not None and item.family.is_canonical:
                total = item.t.square().sum() + (count * mean.square() - 2 * sums * mean).sum()
                gamma = (total / len(item.t)).clamp(min=LEAST_VARIANCE)
        return value

    def _additive(
        self, design: Tensor, item: OneItem, count: Tensor, sums: Tensor, mean: Tensor
    ) -> Tensor:
        """Expected statistics of the groups under an additive model, after a Newton step."""
        eta = item.family.linearise(mean, EPSILON)
        beta = torch.linalg.lstsq(design, eta.unsqueeze(-1)).solution.squeeze(-1)
        cross, counts = (sums @ design)[None, None], count[None, None]
        family, start = item.family, beta[None, None]
        new = maximise_rows(family, cross, counts, design, start, bound=family.bound, num_steps=1)
        return family.mean(design @ new[0, 0])


@dataclass(frozen=True, eq=False)
class OneItem:
    """One item, and the posterior of the rows that answered it, in order of their answers.

    Args:
        family: of its responses; gamma: its variance, where it has one.
        t: statistics, (n,) rising; runs: each distinct one with its first and last row, None where
            there are many.
        weights: the posterior of the profiles without the item, (C, n).
        squares, products: of the weights with themselves (C, C) and with the statistics (C, 1),
            each row by the inverse of its variance.
    """

    family: ResponseFamily
    gamma: Tensor | None
    t: Tensor
    runs: tuple[tuple[float, int, int], ...] | None
    weights: Tensor
    squares: Tensor
    products: Tensor

    @classmethod
    def of(cls, answers: Answers, tables: ItemTables, j: int) -> OneItem:
        """Answers to item j, and the posterior without it."""
        rows = (answers.seen[:, j] > 0).nonzero().ravel()
        t, order = answers.statistic[rows, j].sort(stable=True)
        values, counts = torch.unique_consecutive(t, return_counts=True)
        ends = counts.cumsum(0).tolist()
        runs = None
        if len(values) <= MOST_VALUES:
            runs = tuple(zip(values.tolist(), [0, *ends[:-1]], ends, strict=True))
        family, part = answers.blocks[j]
        weights = tables.without(answers, j, rows[order]).mT.contiguous()
        gamma = tables.dispersion[part] if part >= 0 and tables.dispersion is not None else None
        inner = weights @ weights.mT
        size = len(inner)
        ridge = PILOT_RIDGE * inner.diagonal().mean()
        eye = torch.eye(size, dtype=torch.float64)
        pilot = torch.linalg.solve(inner + ridge * eye, weights @ t + ridge * t.mean())
        low, high = float(t.min()), float(t.max())
        pilot = pilot.clamp(low + EDGE * (high - low), high - EDGE * (high - low))
        eta = family.linearise(pilot, EPSILON)
        expected, own = family.mean(eta), _variance(family, eta, gamma)
        mean = expected @ weights
        spread = (own + expected.square()) @ weights - mean.square()
        inverse = spread.clamp(min=LEAST_VARIANCE).reciprocal()
        weighted = weights * inverse
        return cls(
            family, gamma, t, runs, weights, weighted @ weights.mT, (weighted @ t).unsqueeze(-1)
        )

    def expect(
        self, share: Tensor, mean: Tensor, gamma: Tensor | None
    ) -> tuple[float, Tensor, Tensor]:
        """Log-likelihood, and expected rows and sums of statistics of each group, (L,).

        Args:
            share: (L, n), the chance of each group before the item is seen.
            mean: (L,).
            gamma: the variance, or None.
        """
        if self.runs is None:
            joint = self._density(mean.unsqueeze(-1), gamma, self.t).mul_(share)
            total = joint.sum(0).clamp_(min=TINY)
            own = joint.div_(total)
            return float(total.log().sum()), own.sum(-1), own @ self.t
        value, count, sums = 0.0, torch.zeros_like(mean), torch.zeros_like(mean)
        distinct = self.t.new_tensor([at for at, _, _ in self.runs])
        density = self._density(mean.unsqueeze(-1), gamma, distinct)  # (L, U)
        for u, (at, first, last) in enumerate(self.runs):
            part = share[:, first:last]
            total = (density[:, u] @ part).clamp_(min=TINY)
            own = density[:, u] * (part @ total.reciprocal())
            value, count, sums = value + float(total.log().sum()), count + own, sums + at * own
        return value, count, sums

    def _density(self, mean: Tensor, gamma: Tensor | None, t: Tensor) -> Tensor:
        """Density of statistics t (n,) for means (L, 1), (L, n), up to a constant of each t."""
        eta = self.family.linearise(mean, EPSILON)
        value = self.family.natural(eta, gamma) * t - self.family.partition(eta, gamma)
        if gamma is not None and self.family.is_canonical:
            scale = self.family.scale(gamma.reshape(1), 1)
            value = value if scale is None else (value - t.square() / 2) * scale + scale.log() / 2
        return value.exp_()


def groups_of(profiles: Tensor, row: Tensor, rule: str) -> Tensor:
    """The group of each profile, (C,) long, that an item with these attributes tells apart."""
    asked = profiles[:, row.bool()]
    if rule == "conjunctive":
        return asked.all(1).long() if bool(row.any()) else profiles.new_zeros(len(profiles)).long()
    if rule == "disjunctive":
        return asked.any(1).long()
    powers = 2 ** torch.arange(asked.shape[1] - 1, -1, -1)
    return torch.unique((asked.long() * powers).sum(1), return_inverse=True)[1]


def _groups(answers: Answers, q_matrix: Tensor, rules: Sequence[str]) -> Tensor:
    items = zip(q_matrix, rules, strict=True)
    return torch.stack([groups_of(answers.profiles, row, rule) for row, rule in items])


def tables_of(
    fit: FitRecord, structure: AttributeStructure, answers: Answers, rules: Sequence[str]
) -> ItemTables:
    """The estimate of a fit."""
    layer = structure.layers[0]
    edges = layer.edges
    if edges is None:
        raise ValueError("tables_of: a model with a Q-matrix was expected")
    params = {name: value.double().cpu() for name, value in fit.params.items()}
    intercepts, loadings = layer.coefficients(params[layer.intercepts], params[layer.loadings])
    eta = loadings @ layer.features(answers.profiles).mT + intercepts.unsqueeze(-1)
    dispersion = params[layer.dispersion] if layer.dispersion else None
    root_params = {name: params[name].unsqueeze(0) for name in structure.root.sites()}
    groups = _groups(answers, edges, rules)
    empty = torch.zeros(0)
    first = ItemTables(
        edges.bool().cpu(), tuple(rules), groups, eta, dispersion, root_params, 0.0, empty
    )
    posterior, log_likelihood = _expect(answers, first)
    return replace(first, posterior=posterior, log_likelihood=log_likelihood)


# ---------------------------------------------------------------- the light EM


def _expect(answers: Answers, tables: ItemTables) -> tuple[Tensor, float]:
    """The posterior of the profiles, (N, C), and the log-likelihood."""
    eta = tables.eta
    linear, constant = torch.empty_like(eta), torch.empty_like(eta)
    base = torch.zeros((), dtype=torch.float64)
    for family, columns, part in answers.family.blocks(answers.num_items):
        gamma = None
        if tables.dispersion is not None and part.stop > part.start:
            gamma = tables.dispersion[part]
        scale = family.scale(gamma, columns.stop - columns.start)
        factor = torch.ones((), dtype=torch.float64) if scale is None else scale.unsqueeze(-1)
        each = None if gamma is None else gamma.unsqueeze(-1)
        linear[columns] = family.natural(eta[columns], each) * factor
        constant[columns] = family.partition(eta[columns], each) * factor
        base = base + family.base_measure(answers.x[:, columns], answers.seen[:, columns], gamma)
    prior = answers.root.distribution(tables.root_params).log_prob(answers.profiles).reshape(-1)
    logits = answers.statistic @ linear - answers.seen @ constant + prior
    total = torch.logsumexp(logits, -1)
    return (logits - total.unsqueeze(-1)).exp(), float((total + base).sum())


def _maximise(answers: Answers, tables: ItemTables) -> ItemTables:
    phi = tables.posterior
    sums = answers.statistic.mT @ phi  # (J, C)
    complete = bool((answers.seen > 0).all())
    rows = phi.sum(0)
    counts = rows.expand_as(sums) if complete else answers.seen.mT @ phi
    size = int(tables.groups.max()) + 1
    own = torch.zeros(len(sums), size, dtype=torch.float64)
    grouped = own.scatter_add(1, tables.groups, counts)
    mean = own.scatter_add(1, tables.groups, sums) / grouped.clamp(min=TINY)
    whole = (sums.sum(1) / counts.sum(1).clamp(min=TINY)).unsqueeze(-1)
    mean = torch.where(grouped > 1e-8, mean, whole)
    eta = torch.empty_like(sums)
    squares = answers.statistic.square().sum(0)
    dispersions = []
    for family, columns, part in answers.family.blocks(answers.num_items):
        eta[columns] = family.linearise(mean[columns], EPSILON).gather(1, tables.groups[columns])
        _additive(answers, tables, family, columns, sums, counts, eta)
        if part.stop > part.start and not family.is_canonical and tables.dispersion is not None:
            dispersions.append(tables.dispersion[part])  # sizes stay as the fit has them
        elif part.stop > part.start:
            fitted, n = eta[columns], counts[columns]
            cross = (sums[columns] * fitted).sum(1)
            left = squares[columns] - 2 * cross + (n * fitted.square()).sum(1)
            dispersions.append((left / n.sum(1)).clamp(min=LEAST_VARIANCE))
    statistic = answers.root.expected(answers.profiles, rows.unsqueeze(0), tables.root_params)
    root_params = tables.root_params | answers.root.maximise(statistic, tables.root_params)
    dispersion = torch.cat(dispersions) if dispersions else None
    return replace(tables, eta=eta, dispersion=dispersion, root_params=root_params)


def _additive(
    answers: Answers,
    tables: ItemTables,
    family: ResponseFamily,
    columns: slice,
    sums: Tensor,
    counts: Tensor,
    eta: Tensor,
) -> None:
    """Predictors of the additive items with several attributes, written into ``eta``."""
    own = range(answers.num_items)[columns]
    several = (tables.q_matrix.sum(1) > 1).tolist()
    items = [j for j in own if tables.rules[j] == "additive" and several[j]]
    if not items:
        return
    design = torch.nn.functional.pad(answers.profiles, (1, 0), value=1.0)
    free = tables.q_matrix[items]
    wide = torch.nn.functional.pad(free.double(), (1, 0), value=1.0)
    beta = torch.linalg.lstsq(design, tables.eta[items].mT).solution.mT * wide
    batch = (part.unsqueeze(0) for part in (sums[items] @ design, counts[items], beta))
    cross, count, start = batch
    new = maximise_rows(
        family, cross, count, design, start, free=free, bound=family.bound, num_steps=2
    )
    eta[items] = (new @ design.mT)[0]


def _climb(answers: Answers, tables: ItemTables) -> ItemTables:
    """EM from the posterior that the tables have."""
    last = -float("inf")
    for _ in range(MAX_ITERATIONS):
        tables = _maximise(answers, tables)
        posterior, value = _expect(answers, tables)
        tables = replace(tables, posterior=posterior, log_likelihood=value)
        if value - last < TOLERANCE:
            break
        last = value
    return tables


def _log_density(
    answers: Answers, j: int, rows: Tensor, eta: Tensor, dispersion: Tensor | None
) -> Tensor:
    """Log-density of item j for some rows and each profile, (n, C), up to a constant."""
    family, place = answers.blocks[j]
    gamma = dispersion[place] if place >= 0 and dispersion is not None else None
    value = answers.statistic[rows][:, [j]] * family.natural(eta, gamma) - family.partition(
        eta, gamma
    )
    scale = None if gamma is None else family.scale(gamma.reshape(1), 1)
    return value if scale is None else value * scale


def _variance(family: ResponseFamily, eta: Tensor, gamma: Tensor | None) -> Tensor:
    """Variance of the statistic at a predictor (the log mean if not canonical)."""
    if not family.is_canonical:
        mean = family.mean(eta)
        return mean.square() / family.expansion(eta, mean, gamma)[1]
    own = family.moments(eta)[1]
    return own if gamma is None else own * gamma
