"""Models of binary layers with generalised-linear children: starts, steps and labels."""

from __future__ import annotations

import dataclasses
import math
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from inference.base.align import Alignment, Labels
from inference.base.covariates import SITE, listed_terms, open_coefficients, standard_covariates
from inference.base.gibbs import Gibbs
from inference.base.outcome import EstimateWarning, StartsWarning
from inference.base.starts import StartSearch
from inference.base.steps import DrawSteps, Steps
from inference.base.structure import (
    Capability,
    LabelledLatent,
    NamedEstimate,
    Recommendation,
    Standard,
    Structure,
    as_numbers,
    check_labels,
    check_rank,
    column_levels,
    dispersion_items,
    draw_steps_of,
    labelled_latents,
    more_starts,
    named_estimates,
    normal_scales,
    num_density_items,
    num_possible_free,
    num_settled,
    predictor_names,
    separates,
    set_steps,
    singular_values,
    split_start,
    threshold_labels,
)
from inference.engines.em import EM
from inference.engines.saem import SAEM
from inference.programs.coordinates import NormalScales
from inference.programs.fixed import Fixed
from inference.programs.global_state import OTHER_STREAM
from inference.programs.labelled import NEVER
from inference.programs.program import Params, Program
from inference.structures.layers.align import align_layers, relabel, signed_inside, without_units
from inference.structures.layers.choose_penalty import ChoosePenalty, is_open
from inference.structures.layers.draw_steps import LayeredDraws
from inference.structures.layers.em_steps import LayeredSteps, SetSteps
from inference.structures.layers.free_table import table_gain
from inference.structures.layers.gibbs import LayeredGibbs
from inference.structures.layers.glm import DISPERSION_LIMITS
from inference.structures.layers.graph_search import estimated_graphs
from inference.structures.layers.recoding import DOUBT, layer_codes, unsure_codes
from inference.structures.layers.spectral import (
    NUM_BEHIND,
    leading_values,
    missing_gap,
    random_start,
    spectral_start,
    split_latent,
)
from inference.structures.layers.units import standard_items
from ppl_models.descriptions.covariate_root import CovariateRoot, root_of_rows
from ppl_models.descriptions.covariates import Covariates
from ppl_models.descriptions.layers import GeneralizedLinearLayer, Root
from ppl_models.parts.categorical import (
    as_indicators,
    expected_answers,
    linear_names,
    threshold_limits,
    threshold_names,
)
from ppl_models.parts.repr import counted
from ppl_models.parts.responses import (
    Bernoulli,
    Poisson,
    dispersed_items,
    filled,
    num_densities,
    sizes,
)

if TYPE_CHECKING:
    from inference.base.structure import Problem


# rows times configurations of the first layer, and configurations of two layers
MAX_SUMMED = 2.0**24
MAX_ENUMERATED = 14  # latents of a layer
# of SAEM; and where items depend on products of latents: two spectral starts, and latents of both
# flipped
FEW_STARTS = 4
PRODUCT_SEARCH = StartSearch(
    batch=2 * FEW_STARTS, rungs=((20, FEW_STARTS),), replicates=2, stall=2, cap=8 * FEW_STARTS
)
# where every item has one product (DINA, DINO) starts seldom end in different optima: where all of
# them come to the best, which costs less than it, no other place is looked for
ONE_PRODUCT = dataclasses.replace(PRODUCT_SEARCH, batch=FEW_STARTS, rungs=())
SEARCH = StartSearch(batch=16, rungs=((40, 8), (80, 3)), replicates=2, stall=2, cap=64, budget=1e10)
# where a batch of 16 alone exceeds the budget
FEW_AT_ONCE = dataclasses.replace(SEARCH, batch=FEW_STARTS, rungs=((80, 3),))
ROWS_OF_A_GAP = 200  # with fewer rows, singular values are too rough to say that they have no gap
RANK_TOLERANCE = 1e-10  # of the largest eigenvalue
BOUND_SHARE = 0.999  # a parameter this near its bound is reported
MOST_SHOWN = 8  # items of a warning
MOST_TABLED, MOST_CELLS = 10, 2**22  # latents, and rows times profiles, whose free table is tried
PAIR_LEVEL = 1e-3  # of the tests that call latents dependent, all pairs together


class LayeredStructure(Structure):
    """Structure of models that offer ``layers()`` and ``root_layer()``."""

    @classmethod
    def of(cls, model: Callable[..., Any]) -> LayeredStructure | None:
        if not hasattr(model, "root_layer") and hasattr(model, "root_law"):
            raise ValueError(
                f"model: {type(model).__name__}.root_law() is now called root_layer(); rename it"
            )
        return cls(model) if hasattr(model, "layers") and hasattr(model, "root_layer") else None

    @cached_property
    def layers(self) -> tuple[GeneralizedLinearLayer, ...]:
        return tuple(self.model.layers())

    @cached_property
    def root(self) -> Root:
        root: Root = self.model.root_layer()
        return root

    @property
    def _num_configurations(self) -> list[float]:
        """Number of configurations of each layer's latents, bottom-up."""
        allowed = self.root.profiles
        sizes = [2.0**layer.num_parents for layer in self.layers]
        return sizes if allowed is None else [*sizes[:-1], float(len(allowed))]

    def observed_sites(self) -> tuple[str, ...]:
        return (str(self.layers[0].child),)

    @property
    def covariates(self) -> Covariates | None:
        """Covariates of the deepest latents."""
        root = self.root
        return root.covariates if isinstance(root, CovariateRoot) else None

    @property
    def num_given(self) -> int:
        return 0 if self.covariates is None else len(self.covariates.names)

    def _items(self, data: Tensor) -> Tensor:
        """Columns of the items, which are drawn, (..., J)."""
        return data[..., : self.layers[0].num_items]

    def bind(self, data: Any, weights: Tensor | None = None) -> Any:
        if self.covariates is None or self.covariates.units is not None:
            return self.model
        return dataclasses.replace(
            self.model,
            covariates=self.covariates.measured(data[:, self.layers[0].num_items :], weights),
        )

    def standard(self, problem: Problem) -> Standard | None:
        if self.covariates is None:
            return standard_items(problem)
        return standard_covariates(problem, None, self.covariates, type(self))

    def stand_in(self) -> Tensor | None:
        if self.covariates is None:
            return None
        return torch.ones(1, self.layers[0].num_items + self.num_given, dtype=torch.float64)

    def simulate_like(self, params: Params, data: Any, seed: int) -> Params | None:
        """Simulate items beside the covariates of the data, with their gaps, or None."""
        if self.covariates is None:
            return None
        table = self.model.check_data(data, for_fit=False)[0]
        root = self.root
        size = self.layers[0].num_items
        root = root_of_rows(root, table[:, size:])
        uniform = torch.rand(
            1,
            root.num_latents,
            len(table),
            generator=torch.Generator().manual_seed(seed ^ OTHER_STREAM),
            dtype=torch.float64,
        )
        own = {name: value.unsqueeze(0) for name, value in params.items() if name in root.sites()}
        top = root.draw(own, uniform.to(table))[0].mT
        model = dataclasses.replace(self.model, covariates=None)
        rest = {name: value for name, value in params.items() if name not in root.sites()}
        rest |= {name: value[0] for name, value in model.root_layer().uniform(top).items()} | {
            root.latent: top
        }
        drawn = Program(model, None, len(table)).simulate(rest, seed)[self.observed_sites()[0]]
        items = drawn.masked_fill(self._items(table).isnan(), torch.nan)
        return {self.observed_sites()[0]: torch.cat([items, table[:, size:].to(items)], -1)}

    def as_tables(self, program: Program, values: Params) -> dict[str, Tensor]:
        """Tables of the items alone; covariates are given."""
        if self.covariates is None:
            return super().as_tables(program, values)
        return {name: as_numbers(self, self._items(value)) for name, value in values.items()}

    def start(self, problem: Problem, init: str, num_restarts: int) -> Params:
        """Starting parameters; see :meth:`inference.base.structure.Structure.start`.

        Warns:
            StartsWarning: if the singular values of the items show no gap after the number of
                latents, where no graph is given.
        """
        items = self._items(problem.data)
        if (
            init == "spectral"
            and self.layers[0].edges is None
            and problem.num_rows >= ROWS_OF_A_GAP
        ):
            size = self.layers[0].num_parents
            num_values = min(size + NUM_BEHIND + 1, *items.shape)
            values = leading_values(self.layers[0], items, num_values, size + 1, problem.seed)
            words = missing_gap(values, size)
            if words is not None:
                warnings.warn(
                    f"init='spectral': {words}. The start may say little of"
                    f" {self.layers[0].num_parents} latents: compare sizes with select_dimension,"
                    " or see whether init='random' with num_restarts=20 ends higher",
                    StartsWarning,
                    stacklevel=4,
                )
        root = root_of_rows(self.root, problem.data[..., items.shape[-1] :], problem.weights)
        num_spectral = 0 if init == "random" else 1 if self._has_named_latents else num_restarts
        builds = ((spectral_start, num_spectral), (random_start, num_restarts - num_spectral))
        return _one_after_another(
            [build(self.layers, root, items, num, problem.seed) for build, num in builds if num]
        )

    @property
    def _has_named_latents(self) -> bool:
        """Tell whether latents have names: a graph is given and no item depends on products.

        The spectral start may then match directions to the wrong latents, and EM from it with some
        latents flipped ends where EM from it does: of several starts, all but the first are random.
        """
        return any(layer.graph is not None for layer in self.layers) and all(
            layer.terms is None for layer in self.layers
        )

    @property
    def capabilities(self) -> frozenset[Capability]:  # type: ignore[override]
        """Capabilities: labels alone with sizes read from rows; no blocks with covariates."""
        if not self.layers[0].response.is_canonical:
            return frozenset({Capability.LABELS})
        blocks = {Capability.BLOCKS} if self.covariates is None else set()
        return frozenset({Capability.WEIGHTS, Capability.LABELS} | blocks)

    def steps(self, problem: Problem, chunk_elements: int, num_inner: int) -> Steps[Any] | None:
        if not isinstance(problem.data, Tensor):
            return None

        def build() -> LayeredSteps | None:
            labels = (problem.labels or {}).get(self.layers[0].parent)
            return LayeredSteps.build(
                self.model, problem.data, chunk_elements, num_inner, problem.weights, labels
            )

        return problem.once(f"steps {chunk_elements} {num_inner}", build)

    def gibbs(self, program: Program) -> Gibbs:
        data = program.args[0]
        if isinstance(data, Tensor):
            return LayeredGibbs.build(self.model, data)
        return super().gibbs(program)

    def exact_objective(self, problem: Problem, params: Params) -> tuple[Tensor, Tensor] | None:
        sizes = self._num_configurations
        cells = problem.num_rows * sizes[0] * len(next(iter(params.values())))
        if max(cells, math.prod(sizes[:2])) > MAX_SUMMED or not isinstance(problem.data, Tensor):
            return None
        steps = self.steps(problem, 2**18, 3)
        if steps is None:
            return None
        _, log_likelihood, log_prior = steps.e_step(params)
        return log_likelihood.double().cpu(), (log_likelihood + log_prior).double().cpu()

    def canonical(self, params: Params) -> Params:
        """Name values of latents by a positive sum of loadings, one of 2^K descriptions."""
        return signed_inside(params, self.layers, self.root)

    def align(
        self, params: Params, reference: Mapping[str, Tensor], signs: bool = True
    ) -> Alignment:
        return align_layers(params, reference, self.layers, self.root, signs)

    def labels(self) -> tuple[Labels, ...]:
        layers, root = self.layers, self.root
        out = []
        for layer in layers:
            # products of attributes with a given graph: the attributes have names
            if layer.terms is not None:
                continue
            is_top = layer.parent == root.latent
            if is_top and not (root.renamable or root.flippable):
                continue
            kinds = None
            edges = [layer.graph.mT] if layer.graph is not None else []
            edges += [
                above.graph
                for above in layers
                if above.child == layer.parent and above.graph is not None
            ]
            if edges:  # latents with other edges are other latents
                kinds = torch.cat([edge.cpu().long() for edge in edges], 1).unique(
                    dim=0, return_inverse=True
                )[1]
            if is_top and not root.renamable:
                kinds = torch.arange(layer.num_parents)
            signs = root.flippable or not is_top
            out.append(
                Labels(
                    layer.parent,
                    _columns_of(layer),
                    _renaming(layer.parent, layers, root),
                    signs,
                    kinds,
                )
            )
        return tuple(out)

    def category_names(self, items: Sequence[str]) -> dict[str, tuple[str, ...]]:
        layer = self.layers[0]
        if len(items) < layer.num_items:
            return {}
        return {
            items[j]: names for j, names in layer.response.category_names(layer.num_items).items()
        }

    def expected_rows(self, program: Program, params: Params) -> Tensor | None:
        layer = self.layers[0]
        mixture = program.as_mixture(params) if layer.tabled else None
        if mixture is None:
            return super().expected_rows(program, params)
        shares = program.latent_marginals(params)[mixture.latent]  # (N, C)
        eta = mixture.response.eta.reshape(shares.shape[1], -1)
        expected = expected_answers(
            layer.response, layer.num_items, shares, eta, params.get(layer.dispersion or "")
        )
        # covariates as they are
        return torch.cat([expected, program.args[0][..., layer.num_items :].to(expected)], -1)

    def why_no_standard_errors(self, params: Params) -> str | None:
        if any(layer.penalty is not None for layer in self.layers):
            return (
                "the loadings are penalised, which pulls them towards zero;"
                " inference.selection.polish refits without the penalty on the graph that it left,"
                " and a plain fit(model, data) whose penalty is left open does so by itself"
            )
        return None

    def at_bound(self, params: Params) -> list[str]:
        found = []
        for layer in self.layers:
            for name in (layer.loadings, layer.intercepts):
                value = params[name]
                limit = layer.bounds(value)[(..., None) if name == layer.loadings else ...]
                for index in (value.abs() >= BOUND_SHARE * limit).nonzero().tolist():
                    found.append(f"{name}{index}")
            if layer.thresholds is not None:
                own = params[layer.thresholds]
                low, high = own.new_tensor(
                    threshold_limits(layer.response, layer.num_items)
                ).unbind(-1)
                found += [
                    f"{layer.thresholds}[{i}]"
                    for i in (
                        ((own >= BOUND_SHARE * high) | ((low < 0) & (own <= BOUND_SHARE * low)))
                        .nonzero()
                        .ravel()
                        .tolist()
                    )
                ]
            if layer.dispersion is not None:
                own, (least, most) = params[layer.dispersion], DISPERSION_LIMITS
                at_end = ((own <= least / BOUND_SHARE) | (own >= BOUND_SHARE * most)) & ~sizes(
                    layer.response, layer.num_items
                ).to(own.device)  # a size there is of a Poisson distribution
                found += [f"{layer.dispersion}[{i}]" for i in at_end.nonzero().ravel().tolist()]
        return found

    def concerns(self, problem: Problem, params: Params) -> list[str]:
        """Sentences on slips, dependent latents, separating covariates, empty categories."""
        return [
            *self._upside_down(problem, params),
            *self._go_together(problem, params),
            *self._on_separation(problem, params),
            *self._never_given(problem),
        ]

    def _never_given(self, problem: Problem) -> list[str]:
        """Categories without any row."""
        layer = self.layers[0]
        if not layer.tabled or problem.rows is not None:
            return []
        data = self._items(problem.data)
        items = problem.item_names or tuple(str(j) for j in range(layer.num_items))
        found = [
            f"{items[j]} = {name}"
            for j, names in layer.response.category_names(layer.num_items).items()
            for h, name in enumerate(names)
            if not bool((data[:, j] == h).any())
        ]
        if not found:
            return []
        shown = ", ".join(found[:MOST_SHOWN]) + (
            f" and {len(found) - MOST_SHOWN} more" if len(found) > MOST_SHOWN else ""
        )
        return [
            f"no row has {shown}: how likely such an answer is comes from the prior alone. Join the"
            " category to a neighbour, or leave it out (from_frame takes the categories that rows"
            " have)"
        ]

    def _on_separation(self, problem: Problem, params: Params) -> list[str]:
        if self.covariates is None:
            return []
        found = open_coefficients(
            self.covariates,
            params[SITE],
            problem.data[:, self.layers[0].num_items :],
            problem.weights,
            apart=True,
        )
        if not found:
            return []
        terms = listed_terms(
            [f"{term} ({self._of_root(k)}: {value:.3g})" for k, term, value in found]
        )
        return [
            f"the rows hardly bound the coefficients of {terms}:"
            " a latent seems to be always or never on in rows with certain values of these"
            " covariates, and the sizes of these numbers come from the prior. Join categories,"
            " leave a covariate out, or fit fewer latents"
        ]

    def _of_root(self, k: int) -> str:
        """Name of one latent that depends on covariates, in words."""
        names = getattr(self.model, "attribute_names", None)
        return f"latent {k} of the deepest layer" if names is None else str(names[k])

    def _go_together(self, problem: Problem, params: Params) -> list[str]:
        """Sentences on dependent latents of one layer under a given graph."""
        (layer, *deeper), size = self.layers, self.layers[0].num_parents
        if (
            deeper
            or self.covariates is not None
            or size < 2
            or size > MOST_TABLED
            or layer.graph is None
            or getattr(self.model, "graphs_estimated", False)
        ):
            return []
        if problem.num_rows * 2**size > MOST_CELLS or problem.weights is not None:
            return []
        program = problem.program()
        profiles = program.latent_values(params)[layer.parent]
        chances = (
            self.root.distribution(params).log_prob(profiles.to(params[layer.intercepts])).exp()
        )
        found = table_gain(program.latent_marginals(params)[layer.parent], profiles, chances)
        num_pairs = size * (size - 1) // 2
        if float(found.z.abs().max()) < NormalDist().inv_cdf(1 - PAIR_LEVEL / (2 * num_pairs)):
            return []
        place = int(found.z.abs().argmax())
        j, k = sorted((place // size, place % size))
        more = 2**size - 1 - size
        return [
            f"this model holds that its {size} latents are independent, and the answers say"
            f" otherwise: most clearly latents {j} and {k}, counted from 0 (correlation"
            f" {float(found.correlations[j, k]):.2f}). A free table of the {2**size} profiles would"
            f" raise the log-likelihood by about {found.gain:.0f} nats with the items as they are,"
            f" where chance alone gives about {more / 2:.0f}. Use LatentAttributeModel(Q,"
            " root=Saturated()), which has such a table, or add a layer above"
            " (latent_sizes=(K, 1))"
        ]

    def _upside_down(self, problem: Problem, params: Params) -> list[str]:
        """Sentences on 0/1 items with slip plus guess above one."""
        layer = self.layers[0]
        # several coefficients: none is a slip
        if layer.terms is None or layer.graph is None or bool((layer.graph.sum(-1) != 1).any()):
            return []
        gain = params[layer.loadings].sum(-1)  # of the one product that an item has
        guess = params[layer.intercepts].sigmoid()
        slip = 1 - (params[layer.intercepts] + gain).sigmoid()
        is_bit = torch.zeros_like(gain, dtype=torch.bool)
        for part in layer.parts():
            is_bit[part.rows] = isinstance(part.family, Bernoulli)
        wrong = (is_bit & (gain < 0)).nonzero().ravel().tolist()
        if not wrong:
            return []
        items = problem.item_names or tuple(str(j) for j in range(layer.num_items))
        names = [items[j] for j in layer.item_of()]
        shown = "; ".join(
            f"{names[j]} (slip {slip[j]:.2f} + guess {guess[j]:.2f})" for j in wrong[:MOST_SHOWN]
        )
        more = f" and {len(wrong) - MOST_SHOWN} more" if len(wrong) > MOST_SHOWN else ""
        return [
            f"slip and guess add up to more than one in {shown}{more}: rows that have what the item"
            " asks for answer it less often than the others. The item may be scored the wrong way"
            " round, its row of the Q-matrix may be wrong, or this is a poor optimum: look at"
            " these items, and fit again with more starts"
        ]

    def num_free(self, params: Params, problem: Problem | None = None) -> int:
        """Number of free parameters; loadings of exactly zero are not counted."""
        loadings = {layer.loadings for layer in self.layers}
        others = {name: value for name, value in params.items() if name not in self.root.sites()}
        free = sum(
            int((value != 0).sum()) if name in loadings else value.numel()
            for name, value in others.items()
        )
        return free + self.root.num_free

    def graphs(self, params: Params) -> dict[str, Tensor]:
        out = {}
        for layer, graph in zip(self.layers, estimated_graphs(self.layers, params), strict=True):
            edges = (
                graph
                if layer.terms is None
                else (graph.to(params[layer.loadings]) @ layer.terms.to(params[layer.loadings])) > 0
            )
            out[layer.loadings] = layer.by_item(edges).long()
        return out

    def recommended(self, problem: Problem) -> Recommendation:
        """Recommend exact EM up to 2^14 configurations of a layer, SAEM beyond.

        Where the penalty is left open, it chooses one and fits on the graph that it left.
        """
        is_exact = max(self._num_configurations) <= 2**MAX_ENUMERATED
        method: EM | SAEM = EM() if is_exact else SAEM()
        if is_open(self.model):
            return Recommendation(ChoosePenalty(method))
        if not is_exact:
            return Recommendation(method, num_restarts=1 if problem.start_given else FEW_STARTS)
        if self.layers[0].terms is not None:
            graph = self.layers[0].graph
            is_single = graph is not None and int(graph.sum(-1).max()) == 1
            search = ONE_PRODUCT if is_single else PRODUCT_SEARCH
            return Recommendation(method, num_restarts=FEW_STARTS, search=search)
        first = (
            SEARCH.first_work
            * len(problem.data)
            * self.layers[0].num_children
            * self._num_configurations[0]
        )
        return Recommendation(method, search=SEARCH if first <= SEARCH.budget else FEW_AT_ONCE)


def _one_after_another(starts: Sequence[Params]) -> Params:
    return {name: torch.cat([params[name] for params in starts]) for name in starts[0]}


def _columns_of(layer: GeneralizedLinearLayer) -> Callable[[Params], Tensor]:
    return lambda params: without_units(layer, params, params[layer.loadings]).mT


def _renaming(latent: str, layers: Any, root: Any) -> Callable[[Params, Tensor, Tensor], Params]:
    return lambda params, order, flips: relabel(
        params, layers, root, {latent: order}, {latent: flips}
    )


@column_levels.register(LayeredStructure)
def _(structure: LayeredStructure, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    own = structure.category_names(names)
    if structure.covariates is not None:
        own = own | {
            name: levels
            for name, levels in zip(
                names[structure.layers[0].num_items :], structure.covariates.levels, strict=False
            )
            if levels
        }
    return own


@more_starts.register(LayeredStructure)
def _(
    structure: LayeredStructure, problem: Problem, init: str, num_starts: int, batch: int
) -> Params:
    """Starts of one batch; later batches go without the first spectral start.

    Where no graph is given, half of the starts are random.
    """
    if structure._has_named_latents or structure.layers[0].terms is not None or init == "random":
        found = structure.start(problem, init, num_starts + (batch > 0))
        return {name: value[-num_starts:] for name, value in found.items()}
    half = num_starts // 2
    spectral = structure.start(problem, init, num_starts - half + (batch > 0))
    return _one_after_another(
        [
            {name: value[-(num_starts - half) :] for name, value in spectral.items()},
            structure.start(problem, "random", half),
        ]
    )


@split_start.register(LayeredStructure)
def _(structure: LayeredStructure, problem: Problem, smaller: Params) -> Params | None:
    return split_latent(structure.layers, structure.root, smaller, problem.seed)


@set_steps.register(LayeredStructure)
def _(
    structure: LayeredStructure, problem: Problem, sets: Tensor, chunk_elements: int, num_inner: int
) -> Steps[Any] | None:
    if structure.covariates is not None:
        return None
    base = LayeredSteps.build(structure.model, sets, chunk_elements, num_inner)
    return None if base is None else SetSteps(base)


@normal_scales.register(LayeredStructure)
def _(structure: LayeredStructure, params: Params) -> NormalScales | None:
    """Variances of the observed normal items, with their intercepts and non-zero loadings."""
    layer, name = structure.layers[0], structure.layers[0].dispersion
    if name is None:
        return None
    own = torch.where(
        sizes(layer.response, layer.num_items), -1, torch.arange(params[name].numel())
    )
    intercepts = torch.full((layer.num_children,), -1)
    for part in layer.parts():
        if part.dispersion.stop > part.dispersion.start:
            intercepts[part.rows] = own[part.dispersion]
    loadings = intercepts.unsqueeze(-1).expand(params[layer.loadings].shape)
    used = torch.zeros(len(own)).index_add(
        0,
        intercepts[intercepts >= 0],
        (1 + (params[layer.loadings] != 0).sum(-1).cpu().float())[intercepts >= 0],
    )
    return NormalScales(
        operator.itemgetter(name),
        used,
        {layer.loadings: loadings, layer.intercepts: intercepts},
        {name: own},
    )


@dispersion_items.register(LayeredStructure)
def _(structure: LayeredStructure, items: Sequence[str]) -> list[str]:
    return dispersed_items(structure.layers[0].response, items[: structure.layers[0].num_items])


@named_estimates.register(LayeredStructure)
def _(structure: LayeredStructure) -> dict[str, NamedEstimate]:
    layer, out = structure.layers[0], dict[str, NamedEstimate]()
    if layer.dispersion is None:
        return out
    for part in layer.parts():
        if places := tuple(range(part.dispersion.start, part.dispersion.stop)):
            name = part.family.parameter_names[1]
            before = out[name].places or () if name in out else ()
            out[name] = NamedEstimate(layer.dispersion, (*before, *places), torch.clone)
    if len(out) == 1:
        out = {name: each._replace(places=None) for name, each in out.items()}
    return out


@threshold_labels.register(LayeredStructure)
def _(structure: LayeredStructure, items: Sequence[str]) -> list[str]:
    return threshold_names(structure.layers[0].response, items[: structure.layers[0].num_items])


@predictor_names.register(LayeredStructure)
def _(structure: LayeredStructure, items: Sequence[str]) -> list[str]:
    return linear_names(structure.layers[0].response, items[: structure.layers[0].num_items])


@as_numbers.register(LayeredStructure)
def _(structure: LayeredStructure, table: Tensor) -> Tensor:
    return as_indicators(structure.layers[0].response, table)


@num_density_items.register(LayeredStructure)
def _(structure: LayeredStructure, num_items: int) -> int:
    return num_densities(
        structure.layers[0].response,
        num_items - (structure.num_given if num_items > structure.layers[0].num_items else 0),
    )


@num_possible_free.register(LayeredStructure)
def _(structure: LayeredStructure, params: Params) -> int:
    fixed = sum(int((~layer.graph).sum()) for layer in structure.layers if layer.graph is not None)
    others = {name: value for name, value in params.items() if name not in structure.root.sites()}
    return sum(value.numel() for value in others.values()) + structure.root.num_free - fixed


@num_settled.register(LayeredStructure)
def _(structure: LayeredStructure, params: Params) -> int:
    """Number of free parameters but the loadings: intercepts, dispersions, the root."""
    edges = sum(int((params[layer.loadings] != 0).sum()) for layer in structure.layers)
    return structure.num_free(params) - edges


@singular_values.register(LayeredStructure)
def _(structure: LayeredStructure, problem: Problem, depth: int, num_values: int) -> Tensor:
    below, layers = structure._items(problem.data), structure.layers
    for d, layer in enumerate(layers[:depth]):
        codes = layer_codes(layer, below, d, problem.seed)
        if codes.doubt > DOUBT:
            warnings.warn(unsure_codes(d, codes.doubt), EstimateWarning, stacklevel=4)
        below = codes.bits
    layer = layers[depth]
    if num_values > min(below.shape):
        raise ValueError(
            f"{num_values} singular values were asked for, but the data of layer {depth + 1}"
            f" have rank at most {min(below.shape)}"
        )
    return leading_values(layer, below, num_values, num_values, problem.seed)


@check_rank.register(LayeredStructure)
def _(structure: LayeredStructure, problem: Problem) -> None:
    if not isinstance(problem.data, Tensor):
        return
    layer = structure.layers[0]
    complete, mask = filled(layer.response, structure._items(problem.data))
    statistic = (
        layer.response.statistic(complete)
        if mask is None
        else layer.response.statistic(complete) * layer.response.spread(mask)
    )
    centred = statistic - statistic.mean(0)
    values = torch.linalg.eigvalsh(
        centred.mT @ centred if len(centred) > centred.shape[1] else centred @ centred.mT
    )
    rank = int((values > RANK_TOLERANCE * values.max()).sum())
    if layer.num_parents > rank:
        raise ValueError(
            f"{counted(layer.num_parents, 'latent')} in layer 1 ask for more than the data"
            f" hold: {counted(len(centred), 'row')} of {centred.shape[1]} items have rank"
            f" {rank} after centring"
        )


@draw_steps_of.register(LayeredStructure)
def _(structure: LayeredStructure, problem: Problem) -> DrawSteps | None:
    if not isinstance(problem.data, Tensor):
        return None
    return LayeredDraws(LayeredGibbs.build(structure.model, problem.data))


@separates.register(LayeredStructure)
def _(structure: LayeredStructure, fixed: Fixed) -> bool:
    """Items that are known or free altogether, and a distribution of latents that is known."""
    layer, held = structure.layers[0], {n: ~v.isnan() for n, v in fixed.values.items()}
    of_items = {layer.loadings, layer.intercepts}
    if len(structure.layers) > 1 or not all(
        bool(mask.all()) for name, mask in held.items() if name not in of_items
    ):
        return False
    if not of_items & held.keys():
        return True
    if not (of_items <= held.keys() and isinstance(layer.response, Bernoulli | Poisson)):
        return False
    known, rows = held[layer.intercepts], held[layer.loadings]
    edges = torch.ones_like(rows) if layer.graph is None else layer.graph.to(rows.device)
    whole, some = (rows | ~edges).all(-1), (rows & edges).any(-1)
    return bool(torch.where(known, whole, ~some).all())


@labelled_latents.register(LayeredStructure)
def _(structure: LayeredStructure, problem: Problem) -> dict[str, LabelledLatent]:
    """Lowest latents, one bit each."""
    layer = structure.layers[0]
    return {layer.parent: LabelledLatent((problem.num_rows, layer.num_parents), 2, True)}


@check_labels.register(LayeredStructure)
def _(structure: LayeredStructure, problem: Problem, tables: Mapping[str, Tensor]) -> None:
    """Refuse labels that no profile has that the root allows."""
    profiles, table = structure.root.profiles, tables.get(structure.layers[0].parent)
    if table is None or profiles is None or structure.root.latent != structure.layers[0].parent:
        return
    values = profiles.to(table)
    chances = table[..., 1] @ values.mT + table[..., 0] @ (1 - values).mT  # (N, C)
    for row in (chances < NEVER / 2).all(-1).nonzero()[:1, 0].tolist():
        raise ValueError(
            f"labels of {structure.layers[0].parent!r}: a profile that the model allows was"
            f" expected, and row {row} has none of them"
        )
