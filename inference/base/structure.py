"""Structure of a model for inference; one subclass a kind of description.

A family describes itself in small frozen records (its layers, its chain, its components). A
structure is what engines make of such a description: starts, accelerated steps, a convention for
labels. Everything here has a generic answer, so a family without a description still gets
everything generic.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Generator, Tensor
from torch.distributions.constraints import Constraint

from inference.base.align import Alignment, Labels, align_labels, keeping, places_of_first
from inference.base.degenerate import useless_values
from inference.base.gibbs import GenericGibbs, Gibbs
from inference.base.hashing import digest_of
from inference.base.outcome import Outcome
from inference.base.progress import Progress
from inference.base.starts import StartSearch
from inference.base.steps import DrawSteps, GenericSteps, Steps
from inference.base.streaming.rows import CheckedRows
from inference.programs.fixed import Fixed
from inference.programs.global_state import threads_for
from inference.programs.labelled import Labelled
from inference.programs.posterior_predictive import tables_of
from inference.programs.program import Params, Program
from inference.programs.quadrature import quadrature_of
from inference.programs.sites import MAX_SUMMED, is_large
from ppl_models.data.tables import checks_data, first_row, first_tensor, map_tensors
from ppl_models.descriptions.covariates import Covariates
from ppl_models.descriptions.layers import GeneralizedLinearLayer, Root
from ppl_models.parts.repr import shows_briefly

if TYPE_CHECKING:
    from inference.base.component_noise import NoiseDraws
    from inference.programs.coordinates import NormalScales

S = TypeVar("S")
# an M-step costs a hundred E-steps
OF_PROGRAMS = StartSearch(batch=10, rungs=((5, 4),), replicates=3, cap=40, budget=3e7)
ONE_BY_ONE = StartSearch(batch=6, rungs=((4, 3),), replicates=2, cap=18, budget=1e7)


@dataclass(frozen=True)
class Recommendation:
    """Recommended settings of ``fit`` where the user leaves them open.

    Args:
        method: the engine; exact EM if None.
        init: where it starts; num_restarts: how often.
        search: how starts are tried where several optima are possible and no number is given; None
            for ``num_restarts`` of them.
    """

    method: Method | None = None
    init: str = "spectral"
    num_restarts: int = 1
    search: StartSearch | None = None


def num_counted(weights: Tensor) -> float:
    """Number of rows that weights stand for; an int where it is whole."""
    total = float(weights.double().sum())
    return int(total) if total.is_integer() else total


def open_sites(structure: Structure, program: Program) -> tuple[str, ...]:
    """Continuous latents of the rows that an engine must draw."""
    settled = {*structure.local_sites, *structure.integrated_sites}
    return tuple(name for name in program.names("local") if name not in settled)


def sampled_sites(structure: Structure, program: Program) -> tuple[str, ...]:
    """Continuous latents of a user's program; the library's own have samplers."""
    return () if program.is_own else open_sites(structure, program)


def refuse_open_sites(caller: str, structure: Structure, program: Program) -> None:
    """Refuse continuous latents of the rows, for engines that sum discrete ones out."""
    for name in open_sites(structure, program):
        line = program.site(name).line
        raise ValueError(
            f"{caller} sums discrete latents out and cannot integrate"
            f" {name!r}{f' ({line})' if line else ''}, a continuous latent of the rows: fit(model,"
            " data, NUTS()) or SVI() draws it"
        )


class Capability(enum.Enum):
    """Forms of rows that the engines of a model support."""

    WEIGHTS = "steps of EM count rows by weights"
    BLOCKS = "EM needs no more than sums over rows, so that they may come block by block"
    LOCAL_BLOCKS = "an engine of its own solves the local sites of the rows of a block"
    LABELS = "steps of EM add log p(label | latent) to the log-density of rows and latents"


@dataclass(frozen=True)
class LabelledLatent:
    """Latent of the rows that labels can be said of.

    Args:
        shape: one label for each entry, (N,), (N, bits) or (sequences, steps).
        num_values: V, values 0, ..., V - 1.
        is_binary: whether the values are bits.
        inside: of sequences, which steps lie before the end, (sequences, steps); None of rows.
    """

    shape: tuple[int, ...]
    num_values: int
    is_binary: bool = False
    inside: Tensor | None = None

    @property
    def is_ragged(self) -> bool:
        """Tell whether rows are sequences of steps."""
        return self.inside is not None

    @property
    def in_words(self) -> str:
        """Number of labels, as ``100 rows``."""
        if self.is_ragged:
            return f"{self.shape[1]:,} steps of {self.shape[0]:,} sequences"
        return f"{self.shape[0]:,} rows" + "".join(f" and {n} latents" for n in self.shape[1:])


class Structure:
    """Structure of a model; the base answers for any program.

    Subclasses override what their description allows.

    Args:
        model: the program.
    """

    local_sites: tuple[
        str, ...
    ] = ()  # continuous latents of the rows, for which a fit holds point estimates
    integrated_sites: tuple[str, ...] = ()  # those that are integrated, whatever the engine
    relative_to: str | None = (
        # what the likelihood is a ratio to, in words; None where it is a density or probability of
        # the data
        None
    )
    capabilities: frozenset[Capability] = frozenset()
    row_columns: tuple[
        str, ...
    ] = ()  # of a data frame: what says where a line belongs, where a row is more than one line

    def __init__(self, model: Any) -> None:
        self.model = model
        if (quadrature := quadrature_of(model)) is not None:
            self.integrated_sites = tuple(quadrature.dims)

    @property
    def about(self) -> Any:
        """The model's description of itself; None where it gives none."""
        return None

    @property
    def num_given(self) -> int:
        """Number of trailing columns that are given, not drawn, such as group labels."""
        return 0

    @property
    def covariates(self) -> Covariates | None:
        """Covariates in the last columns of a table; None without any."""
        return None

    @classmethod
    def of(cls, model: Callable[..., Any]) -> Structure | None:
        """The structure of a model that offers this kind of description, else None."""
        return cls(model)

    @property
    def layers(self) -> tuple[GeneralizedLinearLayer, ...]:
        """Layers of binary latents with generalised-linear children, bottom-up, if any."""
        return ()

    @property
    def root(self) -> Root | None:
        """Distribution of the deepest of these layers."""
        return None

    def observed_sites(self) -> tuple[str, ...]:
        """Names of the observed sites where the description tells them, else ()."""
        return ()

    def bind(self, data: Any, weights: Tensor | None = None) -> Any:
        """Bind the model to its data: units of columns and the like.

        Args:
            data: checked; weights: how often each row counts, (N,); None for once.
        """
        return self.model

    def standard(self, problem: Problem) -> Standard | None:
        """Problem in the units in which engines work best; None for those of the data."""
        return None

    def start(self, problem: Problem, init: str, num_restarts: int) -> Params | None:
        """Starting parameters, (R, ...); None for values near zero, unconstrained.

        Args:
            problem: model and data.
            init: "spectral" or "random".
            num_restarts: R.
        """
        return None

    def degenerate(self, problem: Problem, params: Params) -> list[tuple[str, ...]]:
        """Reasons, in words, why the solution of each restart is degenerate; () if it is not.

        Such restarts rank behind all others.

        Of any program: values of a categorical latent that no row uses, or that no row tells apart.

        Args:
            problem: model and data.
            params: by site name, (R, ...), each restart under its canonical labels.
        """
        num = len(next(iter(params.values())))
        if checks_data(self.model) and all(
            site.distribution != "Categorical" for site in problem.program_of_one_row().sites
        ):
            # a run on all rows draws their latents, which takes long where these have many values
            return [()] * num
        held = dataclasses.replace(problem, rows=None).num_rows
        weights = problem.weights
        if problem.rows is not None:
            weights = torch.ones(held, dtype=torch.float64) if weights is None else weights
            weights = weights * (problem.num_rows / held)
        return [
            useless_values(
                problem.program(),
                {name: value[r] for name, value in params.items()},
                held,
                weights,
            )
            for r in range(num)
        ]

    def steps(self, problem: Problem, chunk_elements: int, num_inner: int) -> Steps[Any] | None:
        """Accelerated halves of EM, or None.

        Args:
            problem: model and data.
            chunk_elements: rows times configurations times restarts in memory at once.
            num_inner: inner steps of one M-step.
        """
        return None

    def gibbs(self, program: Program) -> Gibbs:
        """A sampler of the latents of the program's rows.

        Raises:
            ValueError: naming a latent site that is not made of bits.
        """
        # a chunk's program holds the shapes of one row
        return GenericGibbs(Program(program.model, *program.args))

    def exact_objective(self, problem: Problem, params: Params) -> tuple[Tensor, Tensor] | None:
        """Log-likelihood and log-posterior (R,), latents summed out; None if too many."""
        is_fast = Capability.WEIGHTS in self.capabilities
        steps = problem.steps(2**18, 1) if is_fast else None
        if steps is not None:  # else the program is traced
            with torch.no_grad():
                _, log_likelihood, log_prior = steps.e_step(params)
                return log_likelihood.double().cpu(), (log_likelihood + log_prior).double().cpu()
        program = problem.program()
        sizes = [program.site(name).num_values for name in program.names("latent")]
        if (
            None in sizes
            or problem.num_rows * max([1, *(size for size in sizes if size)]) > MAX_SUMMED
        ):
            return None
        with torch.no_grad():
            log_likelihood = program.log_marginal(params).double().cpu()
            return log_likelihood, log_likelihood + program.log_prior(params).double().cpu()

    def canonical(self, params: Params) -> Params:
        """Equivalent parameters under the convention for labels and signs."""
        return params

    def align(
        self, params: Params, reference: Mapping[str, Tensor], signs: bool = True
    ) -> Alignment | None:
        """Align parameters with ``reference``; None where no latents are exchangeable.

        Args:
            params: by site name, without leading dims; reference: the same sites.
            signs: whether the values of a binary latent may change names too.
        """
        return align_labels(params, reference, self.labels(), signs)

    def labels(self) -> tuple[Labels, ...]:
        """Labels of latents that may be exchanged, in the order of renaming."""
        return ()

    def at_bound(self, params: Params) -> list[str]:
        """Entries that lie on the bound of their interval, such as ``loadings_1[0, 2]``."""
        return []

    def concerns(self, problem: Problem, params: Params) -> list[str]:
        """Sentences on estimates that contradict the names of parameters or latents."""
        return []

    def stand_in(self) -> Any:
        """Data of one row for a program that can draw none; None for all others."""
        return None

    def complete_start(self, problem: Problem, params: Params) -> Params:
        """A user's parameters (R, ...) with the local sites' values beside them."""
        return params

    def solve_local(self, params: Params, data: Any) -> Params:
        """Point estimates of the local sites of ``data``, by site, if any."""
        return {}

    def simulate_like(self, params: Params, data: Any, seed: int) -> Params | None:
        """Simulate with lengths, gaps and covariates of ``data``; None for any rows."""
        return None

    def as_tables(self, program: Program, values: Params) -> dict[str, Tensor]:
        """Tables (N, P) of the observed sites, one row a unit, for predictive checks.

        Args:
            program: with the data; values: by observed site, the data's or simulated.
        """
        return tables_of(program, values)

    def why_no_standard_errors(self, params: Params) -> str | None:
        """Reason why the curvature gives no standard errors; None where it does."""
        if self.local_sites:
            return (
                f"{', '.join(self.local_sites)} of the rows are estimated beside the parameters, so"
                " the likelihood is conditional on them"
            )
        return None

    def why_no_criteria(self, params: Params) -> str | None:
        """Reason why AIC, BIC and their like do not apply, with a remedy; None where they do."""
        return None

    def category_names(self, items: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Category names by item, of the items that have some."""
        return {}

    def num_observations(self, problem: Problem) -> float:
        """Sample size of an information criterion: rows, their weights, or steps."""
        weights = problem.every_weight()
        return problem.num_rows if weights is None else num_counted(weights)

    def num_free(self, params: Params, problem: Problem | None = None) -> int:
        """Number of free parameters at the estimate.

        Args:
            params: by site name, without leading dims.
            problem: model and data, where the count depends on them: of a program without a
                description, numbers on the unconstrained scale, where a probability vector has one
                less.
        """
        if problem is not None:
            program = problem.program_of_one_row()
            kept = {name: params[name] for name in program.names("parameter") if name in params}
            params = program.unconstrained(kept)
        return sum(value.numel() for value in params.values())

    def graphs(self, params: Params) -> dict[str, Tensor]:
        """Graph by the site of the loadings: 0 and 1, (num_children, num_parents), if described."""
        return {}

    def latent_means(self, program: Program, params: Params) -> Params:
        """Posterior mean of every latent, by site; probabilities of a categorical one."""
        return program.latent_means(params)

    def latent_modes(self, program: Program, params: Params) -> Params:
        """The most probable value of every latent, by latent site."""
        return program.latent_modes(params)

    def expected_rows(self, program: Program, params: Params) -> Tensor | None:
        """Expected entries, latents averaged over their posterior, shaped as the data, or None."""
        return None

    def recommended(self, problem: Problem) -> Recommendation:
        """Recommend engine, start and restarts where the user names none."""
        program = problem.program()
        sites = [
            site
            for site in program.sites
            if site.kind == "latent" and site.name not in program.integrated
        ]
        if (
            not sites
            or not program.names("parameter")
            or program.names("local")
            or is_large(program.sites)
        ):
            return Recommendation()
        return Recommendation(search=OF_PROGRAMS if program.broadcasts() else ONE_BY_ONE)


class Method(Protocol):
    """An engine: a frozen record of checked settings, and one call."""

    def run(
        self, problem: Problem, start: Params, progress: Progress, checkpoint: Path | None
    ) -> Outcome: ...


def is_method(value: Any) -> bool:
    """Tell whether a value is an engine's instance, and not its class."""
    return not isinstance(value, type) and callable(getattr(value, "run", None))


@shows_briefly
@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """Problem of an engine: a model with its checked data.

    Args:
        model: the program.
        data: (N, J) tensor, or whatever the program takes.
        item_names: column names, () where data is not a table.
        seed: of everything random in the fit.
        start_given: whether the user gave the parameters to start from.
        structure: of the model, for engines.
        trial_results: of the trial whether the program broadcasts, so that there is one trial.
        cache: values made of model, data and weights, by name; see :meth:`once`.
        weights: how often each row of ``data`` counts, (N,); None for once.
        rows: all rows, where they come in blocks and ``data`` is a sample of them; None where
            ``data`` are all.
        labels: by latent site, log p(label | value) of every row of ``data``, (N, ..., V); None
            where no latent is known.
        fixed: known entries of parameters, in the units of the data; None where all are free.
    """

    model: Callable[..., Any]
    data: Any
    item_names: tuple[str, ...]
    seed: int
    start_given: bool
    structure: Structure
    trial_results: dict[str, bool] = dataclasses.field(default_factory=dict, repr=False)
    cache: dict[str, tuple[tuple[Any, ...], Any]] = dataclasses.field(
        default_factory=dict, repr=False
    )
    weights: Tensor | None = None
    rows: CheckedRows | None = None
    labels: dict[str, Tensor] | None = None
    fixed: Fixed | None = None

    def program(self) -> Program:
        """The program with all the data, labels of latents and weights of rows."""

        def traced() -> Program:
            model = self.model if self.labels is None else Labelled(self.model, self.labels)
            program = Program(model, self.data)
            program.share_trial(self.trial_results)
            program.fixed = self.fixed
            return program.weighed(self.weights)

        return self.once("program", traced)

    def once(self, name: str, make: Callable[[], S]) -> S:
        """Cached value of model, data and weights, shared by copies that have all three.

        Args:
            name: of the value; make: called where it is not there yet.
        """
        sources = (self.model, self.data, self.weights, self.labels, self.fixed)
        cached = self.cache.get(name)
        if cached is None or any(a is not b for a, b in zip(cached[0], sources, strict=True)):
            cached = self.cache[name] = (sources, make())
        value: S = cached[1]
        return value

    def generic_steps(self, num_inner: int) -> GenericSteps:
        """EM steps of any program, whose operations are recorded once for all starts.

        Args:
            num_inner: twentieths of the L-BFGS iterations of one M-step.
        """
        program, num_steps = self.program(), 20 * num_inner
        return self.once(f"generic steps, {num_steps}", lambda: GenericSteps(program, num_steps))

    def program_of_one_row(self) -> Program:
        """The program with the first row of the data, where only its parameters matter."""
        if not checks_data(self.model):
            return self.program()
        return self.once("program of one row", lambda: Program(self.model, first_row(self.data)))

    def supports(self) -> dict[str, Constraint]:
        """Supports of the parameters, by site."""
        program = self.program_of_one_row()
        return {name: program.site(name).support for name in program.names("parameter")}

    @property
    def num_rows(self) -> int:
        """Rows of the table, or of a program's plate; all of them, where they come in blocks."""
        if self.rows is not None:
            return self.rows.num_rows
        return len(first_tensor(self.data)) if checks_data(self.model) else self.program().num_rows

    @property
    def numbers(self) -> float:
        """Entries of the data in memory times values of the latents: what a step works through."""
        counts: list[int] = []
        map_tensors(lambda part: counts.append(math.prod(part.shape)), self.data)
        sites = self.program_of_one_row().sites
        held = sum(math.prod(site.shape) for site in sites if site.kind == "observed")
        values = sum(site.num_values or 1 for site in sites if site.kind == "latent")
        return float(max(sum(counts), held)) * max(1, min(values, 2**16))

    def threads(self, num_sets: int = 1) -> AbstractContextManager[None]:
        """Threads of torch that the work wants: one where rows are few, else those of the caller.

        Args:
            num_sets: data sets of this size worked through together.
        """
        return nullcontext() if self.rows is not None else threads_for(self.numbers * num_sets)

    def summed(self, of_rows: Callable[[Any, Tensor | None], S]) -> S:
        """Sum a function of rows and weights (a tensor, dict or record) over all rows."""
        return of_rows(self.data, self.weights) if self.rows is None else self.rows.summed(of_rows)

    def summed_at(self, of_rows: Callable[[slice, Any], S]) -> S:
        """Sum a function of rows and of their place in memory or in this process."""
        return (
            of_rows(slice(None), self.data) if self.rows is None else self.rows.summed_at(of_rows)
        )

    def every_weight(self) -> Tensor | None:
        """Weights of all rows, (N,); None for once."""
        return self.weights if self.rows is None else self.rows.weights

    def every_label(self) -> dict[str, Tensor] | None:
        """Labels of all rows, by latent site; None for none."""
        return self.labels if self.rows is None else self.rows.labels

    def with_data(
        self, change: Callable[[Tensor], Tensor], model: Any, structure: Structure
    ) -> Problem:
        """The problem of another model whose data are these, changed row by row."""
        rows = None if self.rows is None else self.rows.changed(change)
        return dataclasses.replace(
            self,
            model=model,
            data=change(self.data),
            rows=rows,
            structure=structure,
            trial_results={},
            cache={},
        )

    def steps(self, chunk_elements: int, num_inner: int) -> Steps[Any] | None:
        """As :meth:`Structure.steps`; None where they would miss labels or known parameters."""
        if self.labels and Capability.LABELS not in self.structure.capabilities:
            return None
        if self.fixed is not None and not closes(self.structure, self.fixed):
            return None
        return self.structure.steps(self, chunk_elements, num_inner)

    def canonical(self, params: Params) -> Params:
        """As :meth:`Structure.canonical`; as they are where what is known names the latents."""
        return params if self.is_named else self.structure.canonical(params)

    @property
    def is_named(self) -> bool:
        """Tell whether labels of rows, or known or tied parameters, name the latents."""
        if self.labels or self.fixed is None or self.fixed.known:
            return bool(self.labels) or self.fixed is not None

        def count(labels: Iterable[Labels]) -> list[int]:
            return [1 if own.kinds is None else len(own.kinds.unique()) for own in labels]

        return self.once(
            "whether ties name the latents",
            lambda: count(self.exchangeable()) != count(self.structure.labels()),
        )

    def exchangeable(self) -> tuple[Labels, ...]:
        """Latents that may exchange names: those of :meth:`Structure.labels` without labels.

        Of known or tied parameters, those alone that these leave exchangeable.
        """
        labels = [own for own in self.structure.labels() if own.name not in (self.labels or {})]
        if self.fixed is None:
            return tuple(labels)
        like = self.program_of_one_row().draw_prior(1, 0)
        for given, pattern in ((self.fixed.values, list), (self.fixed.ties, places_of_first)):
            own = {name: value.to(like[name]).unsqueeze(0) for name, value in given.items()}
            kept = [keeping(label, like | own, given.keys(), pattern) for label in labels]
            labels = [label for label in kept if label is not None]
        return tuple(labels)

    def fingerprint(self, method: Any, start: Params) -> str:
        """Digest of model, data, method, start and seed, by their code and contents.

        Raises:
            ValueError: naming a part of the program, the data or the method whose contents cannot
                be read.
        """
        parts = [
            digest_of(self.model, "the program"),
            digest_of(self.data, "the data") if self.rows is None else self.rows.digest(),
            digest_of(method, "the method", skip_fitted=True),
            digest_of({name: torch.as_tensor(start[name]) for name in sorted(start)}, "the start"),
            digest_of((self.seed, self.start_given), "the seed"),
            *([] if self.weights is None else [digest_of(self.every_weight(), "the weights")]),
            *([] if self.labels is None else [digest_of(self.every_label(), "the labels")]),
            *([] if self.fixed is None else [digest_of(self.fixed.values, "what is fixed")]),
            *([] if not (self.fixed and self.fixed.ties) else [digest_of(self.fixed.ties, "ties")]),
        ]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Standard:
    """Standardised problem: the same in other units of its columns.

    Args:
        problem: model and data in these units.
        inward, outward: parameters (..., as the sites say) from the units of the data to these, and
            back.
        log_volume: by how much the log-likelihood is larger in these units.
    """

    problem: Problem
    inward: Callable[[Params], Params]
    outward: Callable[[Params], Params]
    log_volume: float


class NamedEstimate(NamedTuple):
    """Function of one site under users' name of it, such as ``probability`` of log-odds.

    Args:
        site: name of the site; places: along its last dim, None for all of it.
        of: the function, of entries with any leading dims.
        is_increasing: whether it increases in each entry alone, so that ends of intervals are
            ends of intervals.
    """

    site: str
    places: tuple[int, ...] | None
    of: Callable[[Tensor], Tensor]
    is_increasing: bool = True


@functools.singledispatch
def separates(structure: Structure, fixed: Fixed) -> bool:
    """Tell whether known entries put back behind an M-step leave its constrained maximum."""
    return False


def closes(structure: Structure, fixed: Fixed) -> bool:
    """Tell whether closed steps find the maximum given known and tied entries."""
    return separates(structure, fixed) and (not fixed.ties or pools(structure, fixed.ties))


@functools.singledispatch
def pools(structure: Structure, ties: Mapping[str, Tensor]) -> bool:
    """Tell whether steps of EM pool the statistics of tied entries."""
    return False


@functools.singledispatch
def labelled_latents(structure: Structure, problem: Problem) -> dict[str, LabelledLatent]:
    """Latents of the rows that labels can be said of, by site: of classes, and of bits."""
    program = problem.program()
    out = {}
    for site in program.sites:
        if site.name not in program.row_latents or site.name in program.integrated:
            continue
        if site.distribution == "Categorical" or site.is_binary:
            values = 2 if site.is_binary else site.num_values or 0
            out[site.name] = LabelledLatent(site.shape, values, site.is_binary)
    return out


@functools.singledispatch
def check_labels(structure: Structure, problem: Problem, tables: Mapping[str, Tensor]) -> None:
    """Refuse labels that have no chance together, whatever the parameters.

    Args:
        problem: model and data; tables: as ``Problem.labels``.

    Raises:
        ValueError: naming the row.
    """


@functools.singledispatch
def means_given_labels(structure: Structure, problem: Problem, params: Params) -> Params:
    """As :meth:`Structure.latent_means`, given the labels of the problem too."""
    return structure.latent_means(problem.program(), params)


@functools.singledispatch
def named_estimates(structure: Structure) -> dict[str, NamedEstimate]:
    """Estimates under the names that users know: means, probabilities, rates, variances."""
    return {}


@functools.singledispatch
def unseen_chances(structure: Structure, data: Any) -> dict[str, Tensor]:
    """Entries of probability vectors that the data never show, by site, bool of its shape.

    A prior alone keeps them off zero, so that nothing is to be judged there.
    """
    return {}


@functools.singledispatch
def more_starts(
    structure: Structure, problem: Problem, init: str, num_starts: int, batch: int
) -> Params | None:
    """Starts of one batch of a search; None as in :meth:`Structure.start`.

    Args:
        problem: model and data; its seed differs from batch to batch.
        init: "spectral" or "random"; num_starts: R.
        batch: 0 for the first.
    """
    return structure.start(problem, init if batch == 0 else "random", num_starts)


@functools.singledispatch
def split_start(structure: Structure, problem: Problem, smaller: Params) -> Params | None:
    """Start (1, ...) from a model of one component less, its largest split; None if unknown.

    None where that is not known, or ``smaller`` is not one less.

    Args:
        problem: this model and data.
        smaller: by site name, without leading dims.
    """
    return None


@functools.singledispatch
def split_starts(structure: Structure, problem: Problem, smaller: Params) -> Params | None:
    """Starts (R, ...) from a model of one component less, each of its components split in turn.

    None as in :func:`split_start`, and where components are not split in turn.
    """
    return None


@functools.singledispatch
def set_steps(
    structure: Structure, problem: Problem, sets: Tensor, chunk_elements: int, num_inner: int
) -> Steps[Any] | None:
    """Halves of EM for data sets (S, N, J) side by side; None where there are none."""
    return None


@functools.singledispatch
def drawn_together(
    structure: Structure, problem: Problem, params: Params, apart: float
) -> Params | None:
    """Parameters with classes at ``apart`` times their distance: 1 as they are, 0 all alike."""
    return None


@functools.singledispatch
def canonical_for_data(structure: Structure, problem: Problem, params: Params) -> Params:
    """Equally likely parameters whose latents, renamed within the data, are easiest to read.

    Args:
        params: of restarts, (R, ...).
    """
    return params


@functools.singledispatch
def check_method(structure: Structure, method: Any) -> None:
    """Refuse an engine that cannot fit this kind of model.

    Raises:
        ValueError: saying which can.
    """


@functools.singledispatch
def check_start(structure: Structure, params: Params) -> None:
    """Refuse starting parameters, inside their supports, that no engine can leave.

    Raises:
        ValueError: naming the site.
    """


@functools.singledispatch
def can_sum_out(structure: Structure, program: Program) -> bool:
    """Tell whether the latents of a row can be summed out: no site has too many values."""
    return not is_large(program.sites)


@functools.singledispatch
def component_noise(
    structure: Structure, params: Params, data: Tensor, generator: Generator, num_draws: int
) -> NoiseDraws | None:
    """Draws of the noise of every component given the data, or None."""
    return None


@functools.singledispatch
def refused_rows(structure: Structure, data: Any) -> Tensor | None:
    """Mask of rows (N,) that a fit refuses and the model may draw, or None.

    None if there are none.
    """
    return None


@functools.singledispatch
def shrunken_estimates(structure: Structure, params: Params, local: Params, data: Any) -> Params:
    """Shrunken estimates of rows, which scatter as the truth does, not as estimates do."""
    return local


@functools.singledispatch
def numeric_items(structure: Structure, items: Sequence[str]) -> list[str]:
    """The items that have a predictor, not a table of probabilities, where some have tables."""
    return []


@functools.singledispatch
def threshold_labels(structure: Structure, items: Sequence[str]) -> list[str]:
    """Names of the thresholds of ordinal items."""
    return []


@functools.singledispatch
def predictor_names(structure: Structure, items: Sequence[str]) -> list[str]:
    """Predictor names, where an item of categories has several."""
    return []


@functools.singledispatch
def category_chances(structure: Structure, params: Params) -> Tensor:
    """Category probabilities of all items that have some, (K, P), item after item."""
    raise ValueError(
        "category_chances: a model with categorical items was expected, got"
        f" {type(structure.model).__name__}"
    )


@functools.singledispatch
def as_numbers(structure: Structure, table: Tensor) -> Tensor:
    """Numeric columns (..., P) of an observed table (..., J), categories as indicators.

    Args:
        table: as the model takes it, NaN where missing.
    """
    return table


@functools.singledispatch
def normal_scales(structure: Structure, params: Params) -> NormalScales | None:
    """Variances of normal distributions among the parameters, for small-sample intervals."""
    return None


@functools.singledispatch
def unlisted_sites(structure: Structure) -> tuple[tuple[str, ...], str]:
    """Sites left out of a summary, such as weights of networks, and a sentence on them."""
    return (), ""


@functools.singledispatch
def dispersion_items(structure: Structure, items: Sequence[str]) -> list[str]:
    """Items whose family has a dispersion, in the order of the dispersion vector."""
    return []


@functools.singledispatch
def column_levels(structure: Structure, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Category names of every column that may hold some, covariates among them."""
    return structure.category_names(names)


@functools.singledispatch
def num_density_items(structure: Structure, num_items: int) -> int:
    """Number of items with a density, as against a probability; 0 if not described."""
    return 0


@functools.singledispatch
def bic_price(structure: Structure, problem: Problem, params: Params) -> float | None:
    """Sum of logs of the observations behind each parameter; None where all rows are."""
    return None


@functools.singledispatch
def num_possible_free(structure: Structure, params: Params) -> int | None:
    """Number of parameters that the free ones were chosen from; None where nothing is chosen."""
    return None


@functools.singledispatch
def num_settled(structure: Structure, params: Params) -> int:
    """Number of parameters outside the graph: free, and not candidates of the selection."""
    return 0


@functools.singledispatch
def singular_values(structure: Structure, problem: Problem, depth: int, num_values: int) -> Tensor:
    """Leading singular values of the linearised, centred children of layer ``depth``."""
    raise ValueError(
        "singular values need a model that describes its layers, got"
        f" {type(structure.model).__name__}"
    )


@functools.singledispatch
def check_rank(structure: Structure, problem: Problem) -> None:
    """Refuse more latents than the data can identify, where there is such a bound.

    Raises:
        ValueError: for a layer with more latents than the rank of its centred children.
    """


@functools.singledispatch
def candidate_families(structure: Structure) -> tuple[Any, ...]:
    """Candidate models for order selection, each nested in the next, or ()."""
    return ()


@functools.singledispatch
def draw_steps_of(structure: Structure, problem: Problem) -> DrawSteps | None:
    """Accelerated halves of stochastic-approximation EM, or None."""
    return None


@functools.singledispatch
def marginal_rows(structure: Structure, program: Program, params: Params) -> Tensor:
    """Log-likelihood of each row, latents summed out, (N,)."""
    return program.log_marginal_rows(params).detach()


@functools.singledispatch
def latent_posteriors(structure: Structure, program: Program, params: Params) -> Params:
    """Posteriors as :meth:`Structure.latent_means`, by closed forms where there are some."""
    return structure.latent_means(program, params)


@functools.singledispatch
def conditional_log_likelihoods(structure: Structure, params: Params, data: Any) -> Tensor:
    """Log-likelihood of each row given parameters and local sites, (N,)."""
    raise NotImplementedError(f"{type(structure).__name__} does not define conditional_rows")
