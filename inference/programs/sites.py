"""Sample sites of a program."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pyro import poutine
from torch import Tensor
from torch.distributions import Dirichlet, Independent, Uniform, constraints

from ppl_models.data.tables import first_tensor
from ppl_models.parts.distributions import support_size
from ppl_models.parts.probability_tables import DirichletTables

MAX_SUMMED = 2**24  # rows times configurations that a generic program may sum over
MAX_VALUES = 2**16  # of one latent site
IN_WORDS = {
    type(support): words
    for support, words in (
        (constraints.real, "finite numbers"),
        (constraints.boolean, "zeros and ones"),
        (constraints.simplex, "shares of at least 0 that sum to one"),
        (constraints.positive_definite, "symmetric positive definite matrices"),
        (constraints.lower_cholesky, "lower triangular matrices with a positive diagonal"),
        (constraints.corr_cholesky, "Cholesky factors of correlation matrices"),
    )
}


@dataclass(frozen=True)
class Site:
    """Sample site of a program: its name, kind, distribution and shape.

    Args:
        name: its name.
        kind: "parameter", "latent", "local", "observed" or, of a ``pyro.factor`` outside the plates
            over rows, "factor".
        shape: own batch and event shape, without restarts; for latents and observed sites with the
            rows.
        support: the constraint its values satisfy.
        plates: names of the plates it stands in, outermost first.
        num_values: size of the enumerated support, None where it is not enumerated.
        distribution: name of its distribution, such as ``Categorical``.
        in_chain: whether it is a step of a ``pyro.markov`` loop.
        line: where it stands in the user's file, in words; "" where that is not looked for.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    support: constraints.Constraint
    plates: tuple[str, ...]
    num_values: int | None
    distribution: str = ""
    in_chain: bool = False
    line: str = ""

    @property
    def is_binary(self) -> bool:
        """Tell whether the values are bits, or vectors of bits."""
        return getattr(self.support, "base_constraint", self.support) is constraints.boolean


def outside(support: Any, value: Tensor) -> str:
    """First value of a site (*batch, *event) outside of its support, and the support in words."""
    while isinstance(support, constraints.independent):
        support = support.base_constraint
    place = tuple((~support.check(value)).nonzero()[0].tolist())
    low, high = (
        None if end is None else float(torch.as_tensor(end).expand(value.shape)[place])
        for end in (getattr(support, f"{side}_bound", None) for side in ("lower", "upper"))
    )
    words = IN_WORDS.get(type(support), repr(support))
    if low is not None and high is not None:
        words = f"numbers between {low:g} and {high:g}"
    for end, beyond, closed in ((low, "above", "of at least"), (high, "below", "of at most")):
        if end is not None and None in (low, high):
            is_closed = bool(support.check(torch.full_like(value, end))[place])
            words = f"numbers {closed if is_closed else beyond} {end:g}"
    shown = ", ".join(f"{entry:g}" for entry in value[place].ravel()[:5].tolist())
    return f"{words} were expected, got {shown}" + (f" at entry {place}" if place else "")


def distribution_name(fn: Any) -> str:
    """Name of a distribution, without what expands, masks or groups it."""
    while type(fn).__name__ in ("Independent", "ExpandedDistribution", "MaskedDistribution"):
        fn = fn.base_dist
    return type(fn).__name__


def sample_nodes(trace: Any) -> dict[str, Any]:
    """Sample sites of a trace, without the index draws of plates."""
    return {
        name: node
        for name, node in trace.nodes.items()
        if node["type"] == "sample" and type(node["fn"]).__name__ != "_Subsample"
    }


def _records(node: Any) -> bool:
    """Tell whether a site is deterministic: its value follows from other sites.

    So do ``pyro.deterministic``, reparametrised sites, and a Delta that is not observed.
    """
    fn, is_hidden = node["fn"], False
    while hasattr(fn, "base_dist"):
        is_hidden = is_hidden or getattr(fn, "_mask", None) is False
        fn = fn.base_dist
    if type(fn).__name__ != "Delta":
        return False
    return is_hidden or not (node["is_observed"] or bool(torch.as_tensor(fn.log_density).any()))


def _log_prob(node: Any) -> torch.Tensor:
    value: torch.Tensor = node["fn"].log_prob(node["value"])
    return value


def unread_imputations(
    model: Callable[..., Any], args: tuple[Any, ...], trace: Any
) -> frozenset[str]:
    """Sites of the entries that ``obs_mask`` hides, which nothing else reads.

    They integrate to one, so that the hidden entries leave the likelihood, as missing ones do.

    Args:
        model: the program; args: what it is called with; trace: of a run.
    """
    nodes = {name: node for name, node in sample_nodes(trace).items() if not _records(node)}
    hidden = [
        name
        for name, node in nodes.items()
        if name.endswith("_unobserved")
        and name.removesuffix("_unobserved") + "_observed" in nodes
        and not node["is_observed"]
    ]
    drawn = {name: node["value"] for name, node in nodes.items() if not node["is_observed"]}
    unread = set()
    for name in hidden:
        for value in _others(nodes[name]):
            moved = poutine.condition(model, drawn | {name: value})
            again = poutine.trace(moved).get_trace(*args).nodes
            pairs = [(node, again[n]) for n, node in nodes.items() if n != name]
            if not all(torch.equal(_log_prob(one), _log_prob(other)) for one, other in pairs):
                break
        else:
            unread.add(name)
    return frozenset(unread)


def _others(node: Any) -> list[Tensor]:
    """Other values of a site; of a discrete one each entry's next, which draws may repeat."""
    fn, value = node["fn"], node["value"]
    is_discrete = bool(fn.support.is_discrete)
    drawn = [fn.sample() for _ in range(3 if is_discrete else 1)]
    if is_discrete and not fn.event_dim:
        if not fn.has_enumerate_support:
            return [value + 1, *drawn]
        with contextlib.suppress(NotImplementedError):  # whose entries have values of their own
            support = fn.enumerate_support(expand=False)
            places = (value == support).long().argmax(0)
            return [support.flatten()[(places + 1) % len(support)], *drawn]
    return drawn


def latents_before(sites: Iterable[Site], parameters: Collection[str] = ()) -> set[str]:
    """Discrete latents that a parameter, or a factor outside the plates over rows, may depend on.

    It comes after them, in their plates at least.

    Args:
        sites: in the program's order; parameters: names of more sites that are parameters.
    """
    latents: list[Site] = []
    names: set[str] = set()
    for site in sites:
        if site.name in parameters or site.kind in ("parameter", "factor"):
            names |= {latent.name for latent in latents if set(latent.plates) <= set(site.plates)}
        elif site.kind == "latent":
            latents.append(site)
    return names


def check_finite(sites: Iterable[Site]) -> None:
    """Refuse latents of infinitely or too many values.

    Raises:
        ValueError: naming the first of them, and what to do.
    """
    for site in sites:
        if site.kind == "latent" and site.num_values is None:
            size = f" of {site.shape[-1]} bits" if site.is_binary and site.shape else ""
            line = f" ({site.line})" if site.line else ""
            raise ValueError(
                f"latent site {site.name!r}{size}{line} with support {site.support} cannot be "
                "enumerated; use a distribution with a finite support (BinaryVector for a vector "
                "of bits, a Categorical over 0, ..., M for a count), fewer latents, or an engine "
                "that samples them (SAEM for bits, SVI with a guide of your own)"
            )


def check_dependent(site: Site, alone: Any, at_once: Any, room: int) -> None:
    """Refuse a parameter or factor that depends on a latent in a way that cannot be summed over.

    Args:
        site: the parameter or factor.
        alone: its node in a plain run; at_once: in a run with all values of the latents, which
            stand on the left of ``room`` dims.

    Raises:
        ValueError: for entries outside any plate, which cannot be told from values of a latent; for
            a support that depends on a latent.
    """
    line = f" ({site.line})" if site.line else ""
    in_plates = {frame.dim for frame in alone["cond_indep_stack"] if frame.vectorized}
    shape = alone["fn"].batch_shape
    for dim in range(-len(shape), 0):
        if shape[dim] > 1 and dim not in in_plates:
            raise ValueError(
                f"{site.kind} {site.name!r}{line} depends on a discrete latent and has "
                f"{shape[dim]} values in dim {dim}, which stands in no plate, so that they cannot "
                "be told from values of the latent: put it inside with "
                f"pyro.plate('components', {shape[dim]}):, or make it one "
                + ("number by .sum()" if site.kind == "factor" else "vector by .to_event(1)")
            )
    base, event_dim = at_once["fn"].support, at_once["fn"].event_dim
    while hasattr(base, "base_constraint"):
        base = base.base_constraint
    if any(
        isinstance(bound, torch.Tensor) and bound.dim() > room + event_dim
        for bound in vars(base).values()
    ):
        raise ValueError(
            f"parameter {site.name!r}{line} has a support that depends on a discrete latent: one "
            "support for all values of the latent was expected, such as a Normal of another scale, "
            "or a site for each value, between which torch.where chooses"
        )


def enumerating(model: Callable[..., Any]) -> Callable[..., Any]:
    """The program with all its discrete latents to be summed out, whatever strategy it names."""

    def parallel(site: Any) -> Any:
        is_open = site["type"] == "sample" and not site["is_observed"]
        if not is_open or not getattr(site["fn"], "has_enumerate_support", False):
            return {}
        if type(site["fn"]).__name__ == "_Subsample":
            return {}
        expand = site["infer"].get("expand", False)
        return {"enumerate": "parallel", "num_samples": None, "expand": expand}

    out: Callable[..., Any] = poutine.infer_config(model, parallel)
    return out


def sites_of(
    trace: Any, lines: dict[str, str], args: tuple[Any, ...], unread: Collection[str] = ()
) -> tuple[tuple[Site, ...], frozenset[str]]:
    """Sites that add to a program's density, in its order, and its plates over rows.

    Args:
        trace: of a run; lines: where each site stands in the user's file.
        args: what the program was called with.
        unread: names of sites that integrate to one, see :func:`unread_imputations`.
    """
    nodes = {
        name: node
        for name, node in sample_nodes(trace).items()
        if not _records(node) and name not in unread
    }
    plates = {
        name: tuple(f.name for f in node["cond_indep_stack"] if f.vectorized)
        for name, node in nodes.items()
    }
    observed = [name for name, node in nodes.items() if node["is_observed"]]
    data = [name for name in observed if distribution_name(nodes[name]["fn"]) != "Unit"] or observed
    row_plates = _row_plates(nodes, plates, data, args)
    sites = []
    for name, node in nodes.items():
        fn = node["fn"]
        num_values = None
        in_rows = bool(row_plates & set(plates[name]))
        if node["is_observed"]:
            kind = "observed" if in_rows or name in data else "factor"
        elif fn.support.is_discrete:
            kind = "latent"
            if fn.has_enumerate_support and not getattr(fn, "reinterpreted_batch_ndims", None):
                num_values = support_size(fn)
        else:
            kind = "local" if in_rows else "parameter"
        shape = tuple(fn.batch_shape + fn.event_shape)
        sites.append(
            Site(
                name,
                kind,
                shape,
                fn.support,
                plates[name],
                num_values,
                distribution_name(fn),
                bool(node["infer"].get("_markov_depth")),
                lines.get(name, ""),
            )
        )
    return tuple(sites), frozenset(row_plates)


def _row_plates(
    nodes: dict[str, Any],
    plates: dict[str, tuple[str, ...]],
    data: Sequence[str],
    args: tuple[Any, ...],
) -> set[str]:
    """Plates over rows: those that all data and discrete latents in their plates share.

    Where they share none, all that any of them stands in. Several shared ones, as persons and items
    of a table, are rows all where discrete latents stand in them too. Continuous sites in some of
    them (abilities, difficulties) then leave it open what a row is: the plate as long as the data,
    else the outermost.
    """
    of_data = {plate for n in data for plate in plates[n]}
    hidden = [
        n for n, node in nodes.items() if not node["is_observed"] and node["fn"].support.is_discrete
    ]
    hidden = (
        [n for n in hidden if of_data & set(plates[n])] if of_data else hidden
    )  # others are latents of parameters, or of all rows
    of_rows = [*data, *hidden]
    common = set.intersection(*(set(plates[n]) for n in of_rows)) if of_rows else set()
    if not common:
        return {name for n in of_rows for name in plates[n]}
    continuous = [
        n
        for n, node in nodes.items()
        if not (node["is_observed"] or node["fn"].support.is_discrete)
    ]
    inside = [some for some in (set(plates[n]) & common for n in continuous) if some]
    if len(common) == 1 or not inside or (hidden and set.intersection(*inside)):
        return common
    frames = {f.name: f for n in of_rows for f in nodes[n]["cond_indep_stack"] if f.name in common}
    table = first_tensor(args[0]) if args else None
    shape = tuple(getattr(table, "shape", ()))
    num_rows = shape[0] if shape else None
    as_long = [f for f in frames.values() if f.size == num_rows] or list(frames.values())
    return {min(as_long, key=lambda f: f.dim).name}


def unchanging_distributions(
    first: Mapping[str, Any], second: Mapping[str, Any]
) -> dict[str, Callable[[Tensor], Tensor]] | None:
    """Log-densities that are the same in two runs whose values differ, by site, or None.

    Args:
        first, second: nodes of the two, by site; the sites of the first; densities of the second.
    """
    distributions = {}
    for name, node_1 in first.items():
        node_2 = second[name]
        if any(
            node["scale"] not in (None, 1.0) or node["mask"] is not None
            for node in (node_1, node_2)
        ):
            return None
        values = torch.stack([node_1["value"], node_2["value"]])
        alone = torch.stack(
            [node_1["fn"].log_prob(node_1["value"]), node_2["fn"].log_prob(node_2["value"])]
        )
        if not all(torch.equal(node["fn"].log_prob(values), alone) for node in (node_1, node_2)):
            return None
        distributions[name] = density_of(node_2["fn"])
    return distributions


@dataclass(frozen=True)
class KnownDensity:
    r"""Log-density of a uniform or Dirichlet distribution, its constant worked out once.

    Args:
        fn: the distribution.
        constant: the log-density of a uniform one; of a Dirichlet one :math:`\log\Gamma(\sum_k
            \alpha_k) - \sum_k \log\Gamma(\alpha_k)`, over all its vectors.
        ends: of the interval, one for all entries; None of probabilities.
        excess: :math:`\alpha - 1`, None where it is 0.
    """

    fn: Any
    constant: Tensor
    ends: tuple[float, float] | None = None
    excess: Tensor | None = None

    def __call__(self, value: Tensor) -> Tensor:
        """Terms of values (..., batch and event), or their sum, (...)."""
        if value.requires_grad or not self._holds(value):
            terms: Tensor = self.fn.log_prob(value)
            return terms
        lead = value.shape[: value.dim() - len(self.fn.batch_shape) - len(self.fn.event_shape)]
        if self.excess is None:
            return self.constant.expand(lead)
        slopes = torch.special.xlogy(self.excess, value)
        total: Tensor = slopes.reshape(*lead, -1).sum(-1) + self.constant
        return total

    def _holds(self, value: Tensor) -> bool:
        if self.ends is None:
            return True
        if not value.numel():
            return True
        least, most = value.aminmax()
        return self.ends[0] <= float(least) and float(most) < self.ends[1]


def _is_one(value: Tensor) -> bool:
    """Tell whether all entries are the same."""
    return bool((value == value.flatten()[0]).all())


def density_of(fn: Any) -> Callable[[Tensor], Tensor]:
    """Log-density of a distribution; of one of known form without its constants at each call."""
    base = fn
    while isinstance(base, Independent):
        base = base.base_dist
    shape = fn.batch_shape + fn.event_shape
    if isinstance(base, Uniform) and _is_one(base.low) and _is_one(base.high):
        ends = float(base.low.flatten()[0]), float(base.high.flatten()[0])
        middle = ((base.low + base.high) / 2).expand(shape)
        return KnownDensity(fn, fn.log_prob(middle).sum(), ends)
    if isinstance(base, Dirichlet | DirichletTables):
        excess = base.concentration - 1
        inside = excess.new_ones(shape)
        if isinstance(base, Dirichlet):  # which may validate its values
            inside = inside / shape[-1]
        constant = fn.log_prob(inside).sum() - torch.special.xlogy(excess, inside).sum()
        return KnownDensity(fn, constant, excess=excess if bool((excess != 0).any()) else None)
    density: Callable[[Tensor], Tensor] = fn.log_prob
    return density


def is_large(sites: Iterable[Site]) -> bool:
    """Tell whether a latent site has too many values for a program to sum over."""
    return any(
        site.kind == "latent" and (site.num_values or math.inf) > MAX_VALUES for site in sites
    )
