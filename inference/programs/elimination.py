"""Variable elimination over the local factors of one run of a program: marginals, posteriors, draws.

Pyro's plated sum-product contraction does the work; this file holds the factors and says what to keep.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from pyro.distributions.util import scale_and_mask
from pyro.ops import packed
from pyro.ops.contract import contract_to_tensor
from pyro.ops.rings import LogRing
from torch import Tensor

from ppl_models.parts.item_response import ItemResponse

__all__ = ["FactorPosteriors", "Factors", "FiniteMixture", "LocalTerms", "differing_site", "narrow_repeated", "posteriors_of", "support_of"]


@dataclass(frozen=True)
class FactorPosteriors:
    """Posterior of each local factor, in the shape of its log-density; 1 where a factor has no latent.

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
    r"""A program as its rows see it: :math:`p(x) = \sum_c w_c f(x \mid c)`, with c the configurations of one latent site.

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
        """Expected configurations of the factors above, given expected ``counts`` of the latent below, in the shape of ``log_weights``.

        The gradient of ``sum(counts * log_weights)``; no rows are needed.
        """
        grads = torch.autograd.grad((counts * self.log_weights).sum(), list(self.upper.values()), retain_graph=True)
        return dict(zip(self.upper, grads, strict=True))


@dataclass(frozen=True, eq=False)
class LocalTerms:
    """One run of a program at given parameters.

    Args:
        trace: the run.
        log_probs: log-densities of its latent, local and observed sites, masks applied but to latents, which sum to one.
        log_prior: of the parameters.
        scale: of all of them.
    """

    trace: Any
    log_probs: dict[str, Tensor]
    log_prior: Tensor
    scale: float


@dataclass
class Factors:
    """Local factors of one run of the program, ready for variable elimination."""

    terms: dict[str, Tensor]  # site -> log-density, plate dims that only repeat narrowed to 1
    symbols: dict[str, dict[int, str]]  # site -> dim -> symbol
    ordinals: dict[str, frozenset]  # site -> plate symbols
    enumerated: dict[str, str]  # latent site -> symbol of its values
    sizes: dict[str, int]  # symbol -> size
    target: frozenset  # plates that every local factor shares (the rows), and restarts
    scale: float
    log_prior: Tensor
    restarts: str | None  # symbol of the plate over restarts
    run: LocalTerms  # symbols and distributions

    @property
    def trace(self) -> Any:
        """The run."""
        return self.run.trace

    @property
    def sum_dims(self) -> set[str]:
        """Every enumerated symbol (a reused pyro.markov dim has one symbol a site)."""
        return set(self.enumerated.values())

    def packed_terms(self) -> OrderedDict:
        tree: OrderedDict = OrderedDict()
        for name, term in self.terms.items():
            tree.setdefault(self.ordinals[name], []).append(packed.pack(term[...], self.symbols[name]))
        return tree

    def contract(self, tree: OrderedDict, target_dims: set[str]) -> Tensor:
        """Sum out every latent but ``target_dims`` and multiply out every plate but ``target``; packed dims."""
        ring = LogRing(cache={}, dim_to_size=self.sizes)
        return contract_to_tensor(tree, self.sum_dims, self.target, target_dims, ring=ring)

    def unpack(self, value: Tensor, last: str | None = None) -> Tensor:
        """From packed dims to (R, rows...) and, at the end, the values of one latent."""
        rows = sorted(self.target - {self.restarts}, key=lambda s: self.trace.symbol_to_dim[s])
        order = ([self.restarts] if self.restarts else []) + rows + ([last] if last else [])
        dims = value._pyro_dims  # type: ignore[attr-defined]
        value = value.permute([dims.index(s) for s in order if s in dims])
        shape = [self.sizes.get(s, 1) if s in dims else 1 for s in order]
        return value.reshape(shape).expand([self.sizes.get(s, 1) for s in order])

    def log_rows(self) -> Tensor:
        """Log-marginal of each row, (R, rows...)."""
        return self.unpack(self.contract(self.packed_terms(), set()))

    def log_total(self) -> Tensor:
        """Log-marginal of all rows, (R,) or (), scaled up if they are a mini-batch."""
        rows = self.log_rows()
        return self.scale * (rows.sum() if self.restarts is None else rows.reshape(len(rows), -1).sum(-1))

    def values(self, name: str) -> Tensor:
        """The enumerated support of a latent site, (num_values, \\*event)."""
        return support_of(self.trace.nodes[name])

    def expected(self, weights: Mapping[str, Tensor]) -> Tensor:
        """Expected log-density of latents and data under posteriors of the factors, (R,) or ()."""
        dim = None if self.restarts is None else self.trace.symbol_to_dim[self.restarts]
        total = torch.zeros(())
        for name, term in self.terms.items():
            weight = weights[name]
            product = torch.where(weight == 0, torch.zeros_like(weight), weight * term)  # 0 * -inf is 0
            if dim is None:
                total = total + product.sum()
            elif product.dim() >= -dim and product.shape[dim] == self.sizes[self.restarts]:  # type: ignore[index]
                total = total + product.movedim(dim, 0).reshape(product.shape[dim], -1).sum(-1)
            else:  # a factor without parameters
                total = total + product.sum() / self.sizes[self.restarts]  # type: ignore[index]
        return total

    def marginals(self) -> dict[str, Tensor]:
        """P(latent = each of its values | data), (R, plates..., num_values), for every latent site."""
        tree, out = self.packed_terms(), {}
        for name, symbol in self.enumerated.items():
            out[name] = torch.softmax(replace(self, target=self.ordinals[name])._log_weights(tree, symbol), -1)
        return out

    def draw(self) -> dict[str, Tensor]:
        """One exact joint draw of the latents, site by site given those drawn before; indices into their supports."""
        tree = OrderedDict((t, list(terms)) for t, terms in self.packed_terms().items())
        remaining, out = dict(self.enumerated), {}
        for name, symbol in self.enumerated.items():
            scoped = replace(self, target=self.ordinals[name], enumerated=remaining)
            logits = scoped._log_weights(tree, symbol)  # (plates..., C)
            out[name] = torch.distributions.Categorical(logits=logits).sample()
            chosen = scoped._packed_index(out[name])
            for terms in tree.values():
                for i, term in enumerate(terms):
                    if symbol in term._pyro_dims:
                        terms[i] = packed.gather(term, chosen, symbol)
            remaining = {k: v for k, v in remaining.items() if v != symbol}
        return out

    def _log_weights(self, tree: OrderedDict, symbol: str) -> Tensor:
        """Log-weight of each value of one latent, the others summed out, (R, plates..., C)."""
        if self.sizes.get(symbol, 1) == 1:  # no factor has a dim for the only value there is
            return torch.zeros_like(self.unpack(self.contract(tree, set()))).unsqueeze(-1)
        return self.unpack(self.contract(tree, {symbol}), last=symbol)

    def _packed_index(self, index: Tensor) -> Tensor:
        order = sorted(self.target, key=lambda s: self.trace.symbol_to_dim[s])
        out = index.reshape([n for n in index.shape if n > 1])
        out._pyro_dims = "".join(s for s, n in zip(order, index.shape, strict=True) if n > 1)  # type: ignore[attr-defined]
        return out


def support_of(node: Any) -> Tensor:
    """The enumerated support of a latent site, (num_values, \\*event)."""
    support: Tensor = node["fn"].enumerate_support(expand=False)
    return support.reshape(support.shape[:1] + node["fn"].event_shape)


def narrow_repeated(term: Tensor, dims: list[int]) -> Tensor:
    """Narrow plate dims along which ``term`` is one value repeated (stride 0): they need no work."""
    for dim in dims:
        if -dim <= term.dim() and term.shape[dim] > 1 and term.stride(dim) == 0:
            term = term.narrow(dim, 0, 1)
    return term


def differing_site(names: Iterable[str], alone: Mapping[str, Any], at_once: Mapping[str, Any], nesting: int, index: int) -> str | None:
    """The first site whose density with all values of the latents at once differs, at one value of each, from that of a run with this value.

    Args:
        names: of the sites.
        alone: nodes of a run in which every latent had its value ``index`` (its last, where it has fewer); at_once: of one with all values.
        nesting: plate dims, on the left of which the values stand.
    """
    for name in names:
        one, many = (scale_and_mask(n["fn"].log_prob(n["value"]), n["scale"], n["mask"]) for n in (alone[name], at_once[name]))
        while many.dim() > nesting:
            many = many[: index + 1][-1]
        one, many = torch.broadcast_tensors(one, many)
        if not torch.allclose(one, many, rtol=1e-4, atol=1e-4, equal_nan=True):
            return name
    return None


def posteriors_of(factors: Any) -> FactorPosteriors:
    """Posterior of every factor, by differentiating the log-marginal with respect to its log-density.

    Args:
        factors: :class:`Factors`, or whatever has its ``terms``, ``log_prior`` and ``log_total``.
    """
    leaves = {name: term.detach().clone().requires_grad_() for name, term in factors.terms.items()}
    with torch.enable_grad():
        total = replace(factors, terms=leaves).log_total()
        grads = torch.autograd.grad(total.sum(), list(leaves.values()))
    return FactorPosteriors(dict(zip(leaves, grads, strict=True)), total.detach(), factors.log_prior.detach())
