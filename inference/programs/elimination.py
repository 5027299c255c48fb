"""Variable elimination over the local factors of a program: marginals, posteriors, draws.

Pyro's plated sum-product contraction does the work; this file holds the factors and says what to
keep.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from pyro.distributions.util import scale_and_mask
from pyro.ops import packed
from pyro.ops.contract import contract_to_tensor
from torch import Tensor

from inference.programs.sites import Site
from inference.programs.tree_width import (
    DirectRing,
    MaxRing,
    OrderedRing,
    SumPlan,
    Terms,
    Unrolled,
    best_plan,
    dims_of,
    with_dims,
)
from ppl_models.parts.item_response import ItemResponse
from ppl_models.parts.repr import listed


@dataclass(frozen=True)
class FactorPosteriors:
    """Posterior of each local factor, shaped as its log-density; 1 without latents.

    Args:
        weights: site name -> tensor.
        log_marginal: () or (R,), the log-likelihood it came with.
        log_prior: of the parameters, () or (R,).
    """

    weights: dict[str, Tensor] = field(metadata={"sum": False})
    log_marginal: Tensor
    log_prior: Tensor = field(metadata={"sum": False})


@dataclass(frozen=True)
class FiniteMixture:
    r"""Finite mixture :math:`p(x) = \sum_c w_c f(x \mid c)` over values of one latent site.

    Args:
        latent: the site whose configurations are c.
        values: (C, \*event), its support.
        log_weights: (R, C) or (C,), log of w; (R, N, C) or (N, C) where w depends on the row.
        response: the observed site's distribution, batch shape (C, R, 1) or (C, 1).
        upper: the factors that w was contracted from, differentiable leaves, by site name.
        log_prior: of the parameters, (R,) or ().
    """

    latent: str
    values: Tensor
    log_weights: Tensor
    response: ItemResponse
    upper: dict[str, Tensor]
    log_prior: Tensor

    def upper_posteriors(self, counts: Tensor) -> dict[str, Tensor]:
        """Expected configurations of the factors above, given ``counts`` of the latent below.

        The gradient of ``sum(counts * log_weights)``; no rows are needed.
        """
        grads = torch.autograd.grad(
            (counts * self.log_weights).sum(), list(self.upper.values()), retain_graph=True
        )
        return dict(zip(self.upper, grads, strict=True))


@dataclass(frozen=True)
class SummedPrior:
    r"""Sites of a prior whose parameters depend on latents, as in a spike and slab.

    With the latents z summed out,

    .. math:: p(\theta) = \sum_z p(z) \, p(\theta \mid z),
        \qquad p(x \mid \theta) = p(x, \theta) / p(\theta).

    Args:
        dependent: parameters, and factors outside the plates over rows, that depend on latents.
        apart: sites that share no latent with the rows; their sum is a factor of its own.
        joined: parameters that depend on latents, and the latents above them, where data depend on
            the same latents; they are summed with the data.
    """

    dependent: frozenset[str] = frozenset()
    apart: frozenset[str] = frozenset()
    joined: frozenset[str] = frozenset()

    @property
    def sites(self) -> frozenset[str]:
        """Names of all these sites."""
        return self.apart | self.joined


@dataclass(frozen=True, eq=False)
class LocalTerms:
    """Log-density terms of one run of a program at given parameters.

    Args:
        trace: the run.
        log_probs: log-densities of its sites but for parameters that depend on no latent, masks
            applied but to latents, which sum to one.
        log_prior: of the sites that are left out.
        scale: of the rows; scale_apart: of sites apart from them.
    """

    trace: Any
    log_probs: dict[str, Tensor]
    log_prior: Tensor
    scale: float
    scale_apart: float = 1.0

    @classmethod
    def of(
        cls, trace: Any, log_probs: dict[str, Tensor], log_prior: Tensor, prior: SummedPrior
    ) -> LocalTerms:
        r"""Terms with the scales of the trace; ``prior`` says which sites it sums over.

        With one scale s of the latents, of the rows or apart from them, and others of data, a
        factor of the rows is :math:`\log f^{s_x / s}`, and their log-marginal counts s times.

        Raises:
            ValueError: for latents of several scales that are summed over together.
        """
        scales: list[float] = []
        apart = prior.apart & log_probs.keys()
        scaled = dict(log_probs)
        for names in (log_probs.keys() - apart, apart):
            nodes = {name: trace.nodes[name] for name in log_probs if name in names}
            by_site = {name: node["scale"] for name, node in nodes.items()}
            if not any(isinstance(scale, Tensor) for scale in by_site.values()) and (
                len(set(by_site.values())) < 2
            ):
                scales.append(float(next(iter(by_site.values()), 1.0)))
                continue
            of_latents = {
                name: torch.as_tensor(scale)
                for name, scale in by_site.items()
                if not nodes[name]["is_observed"]
            }
            values = {float(scale) for scale in of_latents.values() if scale.numel() == 1}
            if len(values) > 1 or any(scale.numel() > 1 for scale in of_latents.values()):
                shown = {name: scale.tolist() for name, scale in of_latents.items()}
                raise ValueError(
                    "latents that are summed out must share one scale, one number, got"
                    f" {shown}: give poutine.scale to what is observed, or one scale to all"
                )
            scales.append(values.pop() if values else 1.0)
            scaled |= {name: log_probs[name] * (by_site[name] / scales[-1]) for name in by_site}
        return cls(trace, scaled, log_prior, *scales)


@dataclass
class Factors:
    """Local factors of one run of the program, ready for variable elimination."""

    terms: dict[str, Tensor]  # site -> log-density, plate dims that only repeat narrowed to 1
    symbols: dict[str, dict[int, str]]  # site -> dim -> symbol
    ordinals: dict[str, frozenset[str]]  # site -> plate symbols
    enumerated: dict[str, str]  # latent site -> symbol of its values
    sizes: dict[str, int]  # symbol -> size
    target: frozenset[str]  # plates that every factor of the rows shares, and restarts
    prior: SummedPrior
    restarts: str | None  # symbol of the plate over restarts
    run: LocalTerms  # symbols and distributions
    unrolled: Unrolled | None = None  # plates whose latents are summed over jointly
    is_max: bool = False  # sums over latents are maxima
    row_weights: Tensor | None = None  # how often each row counts, (N,); None for once

    @property
    def trace(self) -> Any:
        """Trace of the run."""
        return self.run.trace

    @property
    def scale(self) -> float:
        """Scale of the log-density of the rows."""
        return self.run.scale

    @property
    def sum_dims(self) -> set[str]:
        """Symbols of all enumerated latents (a reused pyro.markov dim has one a site)."""
        latents = set(self.enumerated.values())
        return latents if self.unrolled is None else self.unrolled.alone(latents)

    def plan(self) -> SumPlan:
        """Cost of the sums over latents, the best of those that can be taken; plates by name."""
        plan = best_plan(*self._packed(), self._plates_of_latents, self.sizes)
        names = {symbol: name for name, symbol in self.trace.plate_to_symbol.items()}
        unrolled, crossed = (frozenset(names[s] for s in p) for p in (plan.unrolled, plan.crossed))
        return replace(plan, unrolled=unrolled, crossed=crossed)

    def planned(self, plan: SumPlan) -> Factors:
        """These factors with the plates unrolled whose latents are summed over jointly.

        Raises:
            ValueError: for sums that cannot be taken, naming the plates or the tree width.
        """
        if plan.crossed or plan.is_too_large:
            raise ValueError(plan.refusal(listed(map(repr, self.enumerated), 6)))
        if not plan.is_ordered:
            return self
        plates = {self.trace.plate_to_symbol[name] for name in plan.unrolled}
        unrolled = Unrolled.of(plates, self.sizes, self._plates_of_latents)
        return replace(self, unrolled=unrolled, sizes=unrolled.all_sizes)

    @property
    def _plates_of_latents(self) -> dict[str, frozenset[str]]:
        return {symbol: self.ordinals[name] for name, symbol in self.enumerated.items()}

    def only(self, names: Collection[str]) -> Factors:
        """Select the factors of some sites."""
        return replace(
            self, terms={name: term for name, term in self.terms.items() if name in names}
        )

    def packed_terms(self) -> Terms:
        """Factors by plate symbols, those of unrolled plates one by one."""
        tree, seen = self._packed()
        return tree if self.unrolled is None else self.unrolled.split(tree, seen)

    def _packed(self) -> tuple[Terms, dict[int, Tensor]]:
        """Factors by plate symbols, and which of their entries a mask leaves."""
        tree: Terms = OrderedDict()
        seen = {}
        for name, term in self.terms.items():
            one = packed.pack(term[...], self.symbols[name])
            tree.setdefault(self.ordinals[name], []).append(one)
            node = self.trace.nodes[name]
            if isinstance(node["mask"], Tensor) and node["is_observed"]:
                seen[id(one)] = packed.pack(node["mask"][...], self.symbols[name])
        return tree, seen

    def contract(self, tree: Terms, target_dims: set[str]) -> Tensor:
        """Sum out latents but ``target_dims`` and multiply out plates but ``target``; packed."""
        if not tree:
            tree = OrderedDict({self.target: [packed.pack(torch.zeros(()), {})]})
        kind = DirectRing if self.unrolled is None else OrderedRing
        kind = MaxRing if self.is_max else kind
        ring = kind(cache={}, dim_to_size=self.sizes)  # type: ignore[no-untyped-call]
        return cast(
            Tensor, contract_to_tensor(tree, self.sum_dims, self.target, target_dims, ring=ring)
        )

    def unpack(self, value: Tensor, last: str | None = None) -> Tensor:
        """Unpack to (R, rows...) and, at the end, the values of one latent."""
        rows = sorted(self.target - {self.restarts}, key=lambda s: self.trace.symbol_to_dim[s])
        order = ([self.restarts] if self.restarts else []) + rows + ([last] if last else [])
        dims = value._pyro_dims  # type: ignore[attr-defined]
        value = value.permute([dims.index(s) for s in order if s in dims])
        shape = [self.sizes.get(s, 1) if s in dims else 1 for s in order]
        return value.reshape(shape).expand([self.sizes.get(s, 1) for s in order])

    def _log_sum(self) -> Tensor:
        """Log-sum of these factors over the latents, (R, rows...)."""
        return self.unpack(self.contract(self.packed_terms(), set()))

    def _over_rows(self, rows: Tensor) -> Tensor:
        return rows.sum() if self.restarts is None else rows.reshape(len(rows), -1).sum(-1)

    def log_rows(self) -> Tensor:
        """Log-marginal of each row given the parameters, (R, rows...)."""
        rows = self.only(self.terms.keys() - self.prior.apart)._log_sum()
        return rows - self.only(self.prior.joined)._log_sum() if self.prior.joined else rows

    def log_total(self) -> Tensor:
        """Log-marginal of all rows given the parameters, (R,) or (), scaled up for a mini-batch."""
        rows = self.log_rows()
        return self.scale * self._over_rows(
            rows if self.row_weights is None else rows * self.row_weights
        )

    @property
    def log_prior(self) -> Tensor:
        """Log-prior of the parameters, latents summed out, (R,) or ()."""
        total = self.run.log_prior
        if self.prior.apart:
            alone = self.target & {self.restarts}
            total = (
                total
                + self.run.scale_apart
                * replace(self.only(self.prior.apart), target=alone)._log_sum()
            )
        if self.prior.joined:
            total = total + self.scale * self._over_rows(self.only(self.prior.joined)._log_sum())
        return total

    def values(self, name: str) -> Tensor:
        """The enumerated support of a latent site, (num_values, `*event`)."""
        return support_of(self.trace.nodes[name])

    def expected(self, weights: Mapping[str, Tensor]) -> Tensor:
        """Expected log-density of the rows under posteriors of the factors, (R,) or ().

        That of parameters which share latents with data is part of it.
        """
        return self._expected(weights, self.terms.keys() - self.prior.apart)

    def expected_prior(self, weights: Mapping[str, Tensor]) -> Tensor:
        """Expected log-density of all other parameters and the latents above them, (R,) or ()."""
        return self.run.log_prior + self._expected(weights, self.prior.apart)

    def _expected(self, weights: Mapping[str, Tensor], names: Collection[str]) -> Tensor:
        dim = None if self.restarts is None else self.trace.symbol_to_dim[self.restarts]
        total = torch.zeros(())
        for name, term in self.only(names).terms.items():
            weight = weights[name]
            product = torch.where(
                weight == 0, torch.zeros_like(weight), weight * term
            )  # 0 * -inf is 0
            if dim is None:
                total = total + product.sum()
            elif product.dim() >= -dim and product.shape[dim] == self.sizes[self.restarts]:  # type: ignore[index]
                total = total + product.movedim(dim, 0).reshape(product.shape[dim], -1).sum(-1)
            else:  # a factor without parameters
                total = total + product.sum() / self.sizes[self.restarts]  # type: ignore[index]
        return total

    def marginals(self) -> dict[str, Tensor]:
        """Marginals P(latent = value | data), (R, plates..., num_values), by latent site."""
        if self.unrolled is not None and self.unrolled.plates:
            return self._joint_marginals(self.unrolled)
        tree, out = self.packed_terms(), {}
        for name, symbol in self.enumerated.items():
            out[name] = torch.softmax(
                replace(self, target=self.ordinals[name])._log_weights(tree, symbol), -1
            )
        return out

    def _joint_marginals(self, unrolled: Unrolled) -> dict[str, Tensor]:
        """Marginals as derivatives of the log-marginal by a factor of every latent alone."""
        tree, seen = self._packed()
        own, out = {}, {}
        with torch.enable_grad():
            for name, symbol in self.enumerated.items():
                dims = "".join(s for s in (*sorted(self.ordinals[name]), symbol) if s in self.sizes)
                zeros = self.run.log_prior.new_zeros([self.sizes[s] for s in dims])
                own[name] = with_dims(zeros.requires_grad_(), dims)
                tree[self.ordinals[name]].append(own[name])
            total = self.contract(unrolled.split(tree, seen), set()).sum()
            grads = torch.autograd.grad(total, list(own.values()))
        for (name, leaf), grad in zip(own.items(), grads, strict=True):
            scoped = replace(self, target=self.ordinals[name])
            out[name] = scoped.unpack(with_dims(grad, dims_of(leaf)), last=self.enumerated[name])
        return out

    def likeliest(self) -> dict[str, Tensor]:
        r"""Most probable latents, jointly; support indices.

        With maxima in the place of sums, :math:`\max_{z'} p(z, z', x)` of one latent z is highest
        at its value in a joint maximum; the others follow given it, one by one. Latents that a
        mask hides, such as those behind the end of a sequence, count for nothing.
        """
        terms = {
            name: scale_and_mask(term, mask=self.trace.nodes[name]["mask"])
            if name in self.enumerated
            else term
            for name, term in self.terms.items()
        }
        return replace(self, terms=terms, is_max=True).draw()

    def draw(self) -> dict[str, Tensor]:
        """Draw the latents jointly, site by site given those before; support indices."""
        tree = OrderedDict((t, list(terms)) for t, terms in self.packed_terms().items())
        remaining, out = dict(self.enumerated), dict[str, Tensor]()
        if self.unrolled is not None:
            out = self._draw_unrolled(self.unrolled, tree)
        for name, symbol in self.enumerated.items():
            if name in out:
                continue
            scoped = replace(self, target=self.ordinals[name], enumerated=remaining)
            out[name] = scoped._drawn(tree, symbol)
            remaining = {k: v for k, v in remaining.items() if v != symbol}
        return out

    def _draw_unrolled(self, unrolled: Unrolled, tree: Terms) -> dict[str, Tensor]:
        """Draw the latents of unrolled plates one by one."""
        names = {symbol: name for name, symbol in self.enumerated.items()}
        out: dict[str, Tensor] = {}
        for (symbol, entry), alone in unrolled.symbols.items():
            name, inside = names[symbol], unrolled.latents[symbol]
            plates = sorted(self.ordinals[name], key=lambda s: self.trace.symbol_to_dim[s])
            others = self.ordinals[name] - {*inside}
            index = replace(self, target=others)._drawn(tree, alone)
            at = dict(zip(inside, entry, strict=True))
            whole = out.setdefault(name, index.new_zeros([self.sizes[s] for s in plates]))
            whole[tuple(at.get(s, slice(None)) for s in plates)] = index
        return out

    def _drawn(self, tree: Terms, symbol: str) -> Tensor:
        """Draw one latent, which the factors are given from then on; support indices."""
        logits = self._log_weights(tree, symbol)  # (plates..., C)
        index: Tensor = (
            logits.argmax(-1)
            if self.is_max
            else torch.distributions.Categorical(logits=logits).sample()
        )
        chosen = self._packed_index(index)
        for terms in tree.values():
            for i, term in enumerate(terms):
                if symbol in dims_of(term):
                    terms[i] = packed.gather(term, chosen, symbol)
        return index

    def _log_weights(self, tree: Terms, symbol: str) -> Tensor:
        """Log-weight of each value of one latent, the others summed out, (R, plates..., C)."""
        if self.sizes.get(symbol, 1) == 1:  # no factor has a dim for the only value there is
            return torch.zeros_like(self.unpack(self.contract(tree, set()))).unsqueeze(-1)
        return self.unpack(self.contract(tree, {symbol}), last=symbol)

    def _packed_index(self, index: Tensor) -> Tensor:
        order = sorted(self.target, key=lambda s: self.trace.symbol_to_dim[s])
        out = index.reshape([n for n in index.shape if n > 1])
        out._pyro_dims = "".join(s for s, n in zip(order, index.shape, strict=True) if n > 1)  # type: ignore[attr-defined]
        return out


def factors_of(
    run: LocalTerms, prior: SummedPrior, restarts_plate: str | None, sites: Mapping[str, Site]
) -> Factors:
    """The factors of one run of a program.

    Args:
        run: whose trace holds no parameters that depend on no latent.
        prior: which sites the density of the parameters is summed over.
        restarts_plate: name of the plate over restarts; None where there are none.
        sites: of the program, by name.

    Raises:
        ValueError: for a site outside a plate that depends on a latent inside it, of which there is
            one for each entry of the plate.
    """
    run.trace.symbolize_dims()
    plate_symbols = run.trace.plate_to_symbol
    nodes = {name: run.trace.nodes[name] for name in run.log_probs}
    frames = {
        f.name: f for node in nodes.values() for f in node["cond_indep_stack"] if f.vectorized
    }
    ordinals = {
        name: frozenset(plate_symbols[f.name] for f in node["cond_indep_stack"] if f.vectorized)
        for name, node in nodes.items()
    }
    restarts = None if restarts_plate is None else plate_symbols[restarts_plate]
    alone = frozenset() if restarts is None else frozenset({restarts})
    of_rows = [plates for name, plates in ordinals.items() if name not in prior.apart]
    target = frozenset.intersection(*of_rows) if of_rows else alone
    enumerated = {
        name: node["infer"]["_enumerate_symbol"]
        for name, node in nodes.items()
        if node["infer"].get("_enumerate_dim") is not None
    }
    latents = {symbol: name for name, symbol in enumerated.items()}
    several = {plate_symbols[name]: name for name, frame in frames.items() if frame.size > 1}
    terms, symbols, sizes = {}, {}, {}
    for name, node in nodes.items():
        log_prob = run.log_probs[name]
        if node["is_observed"] and isinstance(node["mask"], Tensor) and not node["mask"].any():
            log_prob = log_prob.new_zeros(())  # of which nothing is seen, joins no latents
        symbols[name] = node["infer"]["_dim_to_symbol"]
        for dim, symbol in symbols[name].items():
            if -dim <= log_prob.dim() and log_prob.shape[dim] > 1:
                sizes[symbol] = log_prob.shape[dim]
                outside = (
                    (ordinals[latents[symbol]] - ordinals[name]) & several.keys()
                    if symbol in latents
                    else ()
                )
                if outside:
                    line = f" ({sites[name].line})" if sites[name].line else ""
                    plate = several[min(outside)]
                    raise ValueError(
                        f"site {name!r}{line} depends on all entries of the latent"
                        f" {latents[symbol]!r} in the plate {plate!r}, outside which it stands: put"
                        " it inside; or where all entries are meant, which are then summed over"
                        f" jointly, write them as a loop, for k in pyro.plate({plate!r}, ...):,"
                        " each under a name of its own"
                    )
        terms[name] = narrow_repeated(
            log_prob,
            [
                d
                for d, s in symbols[name].items()
                if s in target - alone and name not in prior.apart
            ],
        )
    sizes |= {enumerated[name]: sites[name].num_values or 1 for name in enumerated}
    sizes |= {plate_symbols[name]: frame.size for name, frame in frames.items()}
    return Factors(terms, symbols, ordinals, enumerated, sizes, target, prior, restarts, run)


def support_of(node: Any) -> Tensor:
    """The enumerated support of a latent site, (num_values, `*event`)."""
    support: Tensor = node["fn"].enumerate_support(expand=False)
    return support.reshape(support.shape[:1] + node["fn"].event_shape)


def narrow_repeated(term: Tensor, dims: list[int]) -> Tensor:
    """Narrow plate dims along which ``term`` repeats one value (stride 0)."""
    for dim in dims:
        if -dim <= term.dim() and term.shape[dim] > 1 and term.stride(dim) == 0:
            term = term.narrow(dim, 0, 1)
    return term


def differing_site(
    names: Iterable[str],
    alone: Mapping[str, Any],
    at_once: Mapping[str, Any],
    nesting: int,
    index: int,
) -> str | None:
    """First site whose density over all latent values differs from a run with one value.

    Args:
        names: of the sites.
        alone: nodes of a run in which every latent had its value ``index`` (its last, where it has
            fewer); at_once: of one with all values.
        nesting: plate dims, on the left of which the values stand.
    """
    for name in names:
        single, batched = (
            scale_and_mask(n["fn"].log_prob(n["value"]), n["scale"], n["mask"])
            for n in (alone[name], at_once[name])
        )
        while batched.dim() > nesting:
            batched = batched[: index + 1][-1]
        single, batched = torch.broadcast_tensors(single, batched)
        if not torch.allclose(single, batched, rtol=1e-4, atol=1e-4, equal_nan=True):
            return name
    return None


def posteriors_of(factors: Any) -> FactorPosteriors:
    """Posteriors of all factors, by differentiating the log-marginal.

    Args:
        factors: :class:`Factors`, or whatever has its ``terms``, ``log_prior`` and ``log_total``.
    """
    leaves = {name: term.detach().clone().requires_grad_() for name, term in factors.terms.items()}
    with torch.enable_grad():
        at_leaves = replace(factors, terms=leaves)
        total, log_prior = at_leaves.log_total(), at_leaves.log_prior
        grads = torch.autograd.grad(total.sum() + log_prior.sum(), list(leaves.values()))
    return FactorPosteriors(
        dict(zip(leaves, grads, strict=True)), total.detach(), log_prior.detach()
    )


def summed_prior(
    trace: Any, log_probs: Mapping[str, Tensor], sites: Sequence[Site], row_plates: Collection[str]
) -> SummedPrior:
    """Find the sites that the prior of the parameters is summed over.

    Args:
        trace: of a run with all values of the latents at once; log_probs: of all its sites.
        sites: of the program; row_plates: names of its plates over rows.
    """
    trace.symbolize_dims()
    infer = {site.name: trace.nodes[site.name]["infer"] for site in sites}
    latents = {n: i["_enumerate_symbol"] for n, i in infer.items() if "_enumerate_symbol" in i}
    carried: dict[str, set[str]] = {}  # site -> latents that its log-density depends on
    for name, log_prob in log_probs.items():
        at_dims = infer[name]["_dim_to_symbol"].items()
        sizes = {symbol: log_prob.shape[dim] for dim, symbol in at_dims if -dim <= log_prob.dim()}
        carried[name] = {symbol for symbol in latents.values() if sizes.get(symbol, 1) > 1}

    def of(names: Iterable[str]) -> set[str]:
        return {symbol for name in names for symbol in carried[name]}

    of_priors = {site.name for site in sites if site.kind in ("parameter", "factor")}
    dependent = {name for name in of_priors if carried[name]}
    of_rows = {site.name for site in sites if set(row_plates) & set(site.plates)}
    of_rows |= {site.name for site in sites if site.kind in ("observed", "local")}
    while more := {name for name in carried if carried[name] & of(of_rows)} - of_rows:
        of_rows |= more  # what shares a latent with them
    apart = {name for name in carried.keys() - of_rows if carried[name] or name in latents}
    joined = {site.name for site in sites if site.kind == "parameter"} & dependent & of_rows
    while more := {name for name, symbol in latents.items() if symbol in of(joined)} - joined:
        joined |= more  # the latents above
    return SummedPrior(frozenset(dependent), frozenset(apart), frozenset(joined))


def mixture_of(factors: Factors, observed: str) -> FiniteMixture | None:
    """A program of one plate as a finite mixture over rows, or None if it is not one.

    Args:
        factors: of the program; observed: its only observed site, which need not have been read.
    """
    if factors.scale != 1.0:
        return None
    response = factors.trace.nodes[observed]["fn"]
    if not isinstance(response, ItemResponse):
        return None
    scale = factors.trace.nodes[observed]["scale"]
    if isinstance(scale, Tensor) or scale != 1.0:
        return None
    if factors.trace.nodes[observed]["mask"] is not None or any(
        ordinal != factors.target for ordinal in factors.ordinals.values()
    ):
        return None
    eta_symbols = {
        factors.symbols[observed].get(dim - response.eta.dim() + 1)
        for dim, size in enumerate(response.eta.shape[:-1])
        if size > 1
    }
    parents = [name for name, symbol in factors.enumerated.items() if symbol in eta_symbols]
    rows = factors.target - {factors.restarts}
    upper = {name: term for name, term in factors.terms.items() if name != observed}
    upper_rows = any(term.dim() and term.shape[-1] > 1 for term in upper.values())
    if len(parents) != 1 or eta_symbols - {factors.enumerated[parents[0]], factors.restarts}:
        return None
    leaves = {name: term.detach().clone().requires_grad_() for name, term in upper.items()}
    summed = frozenset() if upper_rows else rows
    ordinals = {name: t - summed for name, t in factors.ordinals.items() if name in upper}
    symbol = factors.enumerated[parents[0]]
    scoped = replace(factors, terms=leaves, ordinals=ordinals, target=factors.target - summed)
    with torch.enable_grad():
        log_weights = scoped.unpack(scoped.contract(scoped.packed_terms(), {symbol}), last=symbol)
    return FiniteMixture(
        parents[0], factors.values(parents[0]), log_weights, response, leaves, factors.log_prior
    )
