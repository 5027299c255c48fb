"""What inference can do with a model's description of itself; one subclass a kind of description.

A family describes itself in small frozen records (its layers, its chain, its components). A
structure is what engines make of such a description: starts, accelerated steps, a convention for
labels. Everything here has a generic answer, so a family without a description still gets
everything generic.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch
from torch import Generator, Tensor
from torch.distributions.constraints import Constraint

from inference.base.align import Alignment, Labels, align_labels
from inference.base.degenerate import useless_values
from inference.base.gibbs import GenericGibbs, Gibbs
from inference.base.hashing import digest_of
from inference.base.outcome import Outcome
from inference.base.progress import Progress
from inference.base.starts import StartSearch
from inference.base.streaming.rows import CheckedRows
from inference.programs.data import checks_data
from inference.programs.posterior_predictive import tables_of
from inference.programs.program import Params, Program
from inference.programs.sites import MAX_SUMMED, is_large
from inference.programs.tables import first_tensor, map_tensors
from ppl_models.descriptions.covariates import Covariates
from ppl_models.descriptions.layers import GeneralizedLinearLayer, Root
from ppl_models.parts.repr import shows_briefly

if TYPE_CHECKING:
    from inference.base.component_noise import NoiseDraws
    from inference.base.draw_steps import DrawSteps
    from inference.base.steps import Steps
    from inference.programs.coordinates import NormalScales

S = TypeVar("S")
OF_PROGRAMS = StartSearch(
    batch=10, short_iterations=5, finalists=4, least=4, cap=40, budget=3e7
)  # an M-step costs a hundred E-steps
ONE_BY_ONE = StartSearch(
    batch=6, short_iterations=4, finalists=3, least=3, replicates=2, cap=18, budget=1e7
)


@dataclass(frozen=True)
class Recommendation:
    """What ``fit`` does where the user leaves it open.

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
    """How many rows these weights stand for: an int where it is whole."""
    total = float(weights.double().sum())
    return int(total) if total.is_integer() else total


def open_sites(structure: Structure, program: Program) -> tuple[str, ...]:
    """Continuous latents of the rows that the structure neither solves for nor integrates: an
    engine must draw them.
    """
    settled = {*structure.local_sites, *structure.integrated_sites}
    return tuple(name for name in program.names("local") if name not in settled)


def sampled_sites(structure: Structure, program: Program) -> tuple[str, ...]:
    """Those of a user's program: the library's own families have samplers for theirs."""
    return () if program.is_own else open_sites(structure, program)


def refuse_open_sites(caller: str, structure: Structure, program: Program) -> None:
    """Refuse continuous latents of the rows in one sentence, for engines and questions that sum
    discrete latents out and draw nothing.

    Raises:
        ValueError: naming the first of them, where it stands, and what to use instead.
    """
    for name in open_sites(structure, program):
        line = program.site(name).line
        raise ValueError(
            f"{caller} sums discrete latents out and cannot integrate"
            f" {name!r}{f' ({line})' if line else ''}, a continuous latent of the rows: fit(model,"
            " data, NUTS()) or SVI() draws it"
        )


class Structure:
    """A model of which nothing is known but its program.

    Subclasses override what their description allows.

    Args:
        model: the program.
    """

    local_sites: tuple[
        str, ...
    ] = ()  # continuous latents of the rows, for which a fit holds point estimates
    integrated_sites: tuple[str, ...] = ()  # those that are integrated in closed form
    relative_to: str | None = (
        # what the likelihood is a ratio to, in words; None where it is a density or probability of
        # the data
        None
    )
    takes_weights = False  # whether the steps of EM count rows by weights
    # whether sums over rows are all that EM wants of them, so that they may come block by block
    takes_blocks = False
    # whether an engine of its own solves the local sites of rows block by block, and adds up the
    # rest
    solves_blocks = False
    row_columns: tuple[
        str, ...
    ] = ()  # of a data frame: what says where a line belongs, where a row is more than one line

    def __init__(self, model: Any) -> None:
        self.model = model

    @property
    def about(self) -> Any:
        """The model's description of itself; None where it gives none."""
        return None

    @property
    def num_given(self) -> int:
        """Columns at the end of a table that are given and not drawn, such as labels of groups."""
        return 0

    @property
    def covariates(self) -> Covariates | None:
        """Columns at the end of a table on which the latents of its rows depend; None where they
        depend on none.
        """
        return None

    @classmethod
    def of(cls, model: Callable[..., Any]) -> Structure | None:
        """The structure of a model that offers this kind of description, else None."""
        return cls(model)

    @property
    def layers(self) -> tuple[GeneralizedLinearLayer, ...]:
        """Layers of binary latents with generalised-linear children, bottom-up; none in most
        programs.
        """
        return ()

    @property
    def root(self) -> Root | None:
        """The law of the deepest of these layers."""
        return None

    def observed_sites(self) -> tuple[str, ...]:
        """Names of the observed sites where the description says them; () where only a run with
        data can tell.
        """
        return ()

    def measured(self, data: Any, weights: Tensor | None = None) -> Any:
        """The model with what a fit takes from its data before it begins, such as the units of
        columns; itself where that is nothing.

        Args:
            data: checked; weights: how often each row counts, (N,); None for once.
        """
        return self.model

    def standard(self, problem: Problem) -> Standard | None:
        """The problem in units in which engines work best; None for those of the data."""
        return None

    def start(self, problem: Problem, init: str, num_restarts: int) -> Params | None:
        """Parameters to start from, (R, ...); None for values drawn near zero on the unconstrained
        scale.

        Args:
            problem: model and data.
            init: "spectral" or "random".
            num_restarts: R.
        """
        return None

    def more_starts(
        self, problem: Problem, init: str, num_starts: int, batch: int
    ) -> Params | None:
        """Starts of one batch of a search, independent of those of other batches; None as in
        :meth:`start`.

        Args:
            problem: model and data; its seed differs from batch to batch.
            init: "spectral" or "random"; num_starts: R.
            batch: 0 for the first.
        """
        return self.start(problem, init if batch == 0 else "random", num_starts)

    def degenerate(self, problem: Problem, params: Params) -> tuple[str, ...]:
        """What makes a solution no proper optimum, in words; () where nothing does.

        Such restarts rank behind all others.

        Of any program: values of a categorical latent that no row uses, or that no row tells apart.

        Args:
            problem: model and data.
            params: by site name, without leading dims, under the canonical labels.
        """
        if checks_data(self.model) and all(
            site.law != "Categorical" for site in problem.program_of_one_row().sites
        ):
            # a run on all rows draws their latents, which takes long where these have many values
            return ()
        held = len(first_tensor(problem.data))
        return useless_values(
            problem.program(),
            params,
            held,
            1.0 if problem.rows is None else problem.num_rows / held,
        )

    def split_start(self, problem: Problem, smaller: Params) -> Params | None:
        """Parameters of this model, (1, ...), from those of the same model with one latent value or
        latent less: its largest one split in two.

        None where that is not known, or ``smaller`` is not one less.

        Args:
            problem: this model and data.
            smaller: by site name, without leading dims.
        """
        return None

    def steps(self, problem: Problem, chunk_elements: int, num_inner: int) -> Steps[Any] | None:
        """Accelerated halves of EM, or None.

        Args:
            problem: model and data.
            chunk_elements: rows times configurations times restarts in memory at once.
            num_inner: inner steps of one M-step.
        """
        return None

    def set_steps(
        self, problem: Problem, sets: Tensor, chunk_elements: int, num_inner: int
    ) -> Steps[Any] | None:
        """Halves of EM for data sets (S, N, J) side by side, as
        :mod:`inference.base.many_data_sets` has them; None where there are none.
        """
        return None

    def draw_steps(self, problem: Problem) -> DrawSteps | None:
        """Accelerated halves of stochastic-approximation EM, or None."""
        return None

    def gibbs(self, program: Program) -> Gibbs:
        """A sampler of the latents of the program's rows.

        Raises:
            ValueError: naming a latent site that is not made of bits.
        """
        return GenericGibbs(
            Program(program.model, *program.args)
        )  # a chunk's program holds the shapes of one row

    def exact_objective(self, problem: Problem, params: Params) -> tuple[Tensor, Tensor] | None:
        """Log-likelihood and log-posterior, latents summed out, each (R,); None where that takes
        too long.
        """
        if problem.weights is not None and (steps := self.steps(problem, 2**18, 1)) is not None:
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

    def drawn_together(self, problem: Problem, params: Params, apart: float) -> Params | None:
        """Parameters, without restarts, whose classes lie ``apart`` times as far from one another:
        1 as in ``params``, 0 all alike; None where unknown.
        """
        return None

    def canonical(self, params: Params) -> Params:
        """The same law under the library's convention for labels and signs."""
        return params

    def canonical_for_data(self, problem: Problem, params: Params) -> Params:
        """Of all parameters that fit these data exactly as well by another naming of the latents,
        those whose names are easiest to read; itself where latents can be renamed as a whole alone,
        which is what :meth:`canonical` and :meth:`labels` are for.

        Args:
            problem: model and data.
            params: of restarts, (R, ...).
        """
        return params

    def align(
        self, params: Params, reference: Mapping[str, Tensor], signs: bool = True
    ) -> Alignment | None:
        """Parameters under the names of the latents that bring them nearest to ``reference``; None
        where no names are known to be exchangeable.

        Args:
            params: by site name, without leading dims; reference: the same sites.
            signs: whether the values of a binary latent may change names too.
        """
        return align_labels(params, reference, self.labels(), signs)

    def labels(self) -> tuple[Labels, ...]:
        """Which latents may exchange names without changing the law; in the order they are to be
        renamed.
        """
        return ()

    def at_bound(self, params: Params) -> list[str]:
        """Entries that lie on the bound of their interval, such as ``loadings_1[0, 2]``."""
        return []

    def concerns(self, problem: Problem, params: Params) -> list[str]:
        """What in these estimates contradicts the names of the parameters or latents, as sentences
        that name items and a remedy.
        """
        return []

    def check_method(self, method: Any) -> None:
        """Refuse an engine that cannot fit this kind of model.

        Raises:
            ValueError: saying which can.
        """

    def stand_in(self) -> Any:
        """Data of one row to run the program on where it is only asked what sites it has, for
        programs that can draw no rows; None for all others.
        """
        return None

    def check_start(self, params: Params) -> None:
        """Refuse a user's parameters, inside their supports, from which no engine gets away.

        Raises:
            ValueError: naming the site.
        """

    def complete_start(self, problem: Problem, params: Params) -> Params:
        """A user's parameters (R, ...) with the local sites' values beside them."""
        return params

    def solve_local(self, params: Params, data: Any) -> Params:
        """Point estimates of the local sites of the rows of ``data``, by site; nothing where there
        are none.
        """
        return {}

    def sums_out(self, program: Program) -> bool:
        """Whether the latents of a row can be summed over: no site has too many values."""
        return not is_large(program.sites)

    def marginal_rows(self, program: Program, params: Params) -> Tensor:
        """Log-likelihood of each row, latents summed out, (N,)."""
        return program.log_marginal_rows(params).detach()

    def conditional_rows(self, params: Params, data: Any) -> Tensor:
        """Log-likelihood of each row given parameters and its local sites, (N,); for models with
        local sites.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define conditional_rows")

    def component_noise(
        self, params: Params, data: Tensor, generator: Generator, num_draws: int
    ) -> NoiseDraws | None:
        """Draws of the noise of every component given the data (see
        :mod:`inference.base.component_noise`), or None.
        """
        return None

    def simulate_like(self, params: Params, data: Any, seed: int) -> Params | None:
        """One draw of the observed sites of the shape of ``data``: its lengths, gaps and
        covariates; None for any rows.
        """
        return None

    def refused_rows(self, data: Any) -> Tensor | None:
        """Rows that a fit refuses though the model may draw them, bool (N,): in simulated data they
        are drawn again.

        None if there are none.
        """
        return None

    def as_tables(self, program: Program, values: Params) -> dict[str, Tensor]:
        """Values of the observed sites as tables with one row a unit, (N, P), which a predictive
        check compares.

        Args:
            program: with the data; values: by observed site, the data's or simulated.
        """
        return tables_of(program, values)

    def numeric_items(self, items: Sequence[str]) -> list[str]:
        """The items that have a predictor, not a table of probabilities, where some have tables."""
        return []

    def threshold_names(self, items: Sequence[str]) -> list[str]:
        """Names of what lies between the categories of ordinal items."""
        return []

    def predictor_names(self, items: Sequence[str]) -> list[str]:
        """Names of the predictors that are linear in latents, where an item of categories has
        several.
        """
        return []

    def category_chances(self, params: Params) -> Tensor:
        """Probabilities of all categories of all items that have some, (K, P), item after item as
        :meth:`category_names` has them.

        Raises:
            ValueError: for a model without such items.
        """
        raise ValueError(
            "category_chances: a model with categorical items was expected, got"
            f" {type(self.model).__name__}"
        )

    def as_numbers(self, table: Tensor) -> Tensor:
        """An observed table (..., J) in columns whose means and correlations say something, (...,
        P): of categories their indicators.

        Args:
            table: as the model takes it, NaN where missing.
        """
        return table

    def normal_scales(self, params: Params) -> NormalScales | None:
        """The variances of normal laws among the parameters, for intervals from few rows; None
        where there are none.
        """
        return None

    def why_no_standard_errors(self, params: Params) -> str | None:
        """Why the curvature of the log-likelihood gives no standard errors of these estimates; None
        where it does.
        """
        if self.local_sites:
            return (
                f"{', '.join(self.local_sites)} of the rows are estimated beside the parameters, so"
                " the likelihood is conditional on them"
            )
        if self.integrated_sites:
            return (
                f"{', '.join(self.integrated_sites)} of the rows are continuous; Bootstrap() gives"
                " intervals here"
            )
        return None

    def why_no_criteria(self, params: Params) -> str | None:
        """Why AIC, BIC and their like, which charge for every free parameter, do not apply, and
        what to use instead; None where they do.
        """
        return None

    def unlisted_sites(self) -> tuple[tuple[str, ...], str]:
        """Sites whose numbers say nothing one by one, such as weights of networks, and in a
        sentence what they are and where; a summary leaves them out.
        """
        return (), ""

    def dispersed_items(self, items: Sequence[str]) -> list[str]:
        """The items whose family has a dispersion, in the order of the dispersion vector; none
        where that is not described.
        """
        return []

    def category_names(self, items: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Names of the categories of the items that have some, by item; none where that is not
        described.
        """
        return {}

    def column_levels(self, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Names of the categories of every column that may hold some, those that are given among
        them, by column.
        """
        return self.category_names(names)

    def num_densities(self, num_items: int) -> int:
        """How many of the items the model gives a density, as against a probability; 0 where that
        is not described.
        """
        return 0

    def num_observations(self, problem: Problem) -> float:
        """Sample size in an information criterion: rows, or the sum of their weights; unless rows
        are sequences.
        """
        weights = problem.every_weight()
        return problem.num_rows if weights is None else num_counted(weights)

    def num_free(self, params: Params) -> int:
        """Free parameters at the estimate."""
        return sum(value.numel() for value in params.values())

    def count_free(self, problem: Problem, params: Params) -> int | None:
        """Free parameters, counted with the data at hand: of a program that says nothing of itself
        the numbers on the unconstrained scale, where a probability vector has one less; None where
        :meth:`num_free` knows.
        """
        if type(self).num_free is not Structure.num_free:
            return None
        return sum(
            value.numel() for value in problem.program_of_one_row().unconstrained(params).values()
        )

    def bic_price(self, problem: Problem, params: Params) -> float | None:
        """The sum over free parameters of the log of the observations that each is read from, where
        these differ between parameters; None where all are read from all rows.
        """
        return None

    def num_possible(self, params: Params) -> int | None:
        """Out of how many the free parameters were chosen, where a graph is estimated; None where
        nothing is chosen.
        """
        return None

    def num_settled(self, params: Params) -> int:
        """How many of the free parameters are free whatever the graph, and are not counted among
        those that it is chosen from.
        """
        return 0

    def graphs(self, params: Params) -> dict[str, Tensor]:
        """Which latents each child depends on, by the site of the loadings: whole numbers 0 and 1,
        (num_children, num_parents); none where that is not described.
        """
        return {}

    def singular_values(self, problem: Problem, depth: int, num_values: int) -> Tensor:
        """Leading singular values of what layer ``depth`` (counted from 0) explains: its children,
        linearised (but for observed bits) and centred.

        Raises:
            ValueError: for a model that does not describe its layers.
        """
        raise ValueError(
            "singular values need a model that describes its layers, got"
            f" {type(self.model).__name__}"
        )

    def check_rank(self, problem: Problem) -> None:
        """Refuse more latents than the data could tell apart, where there is such a bound.

        Raises:
            ValueError: for a layer with more latents than the rank of its centred children.
        """

    def latent_means(self, program: Program, params: Params) -> Params:
        """Posterior mean of every latent's value, by latent site; a categorical latent gives its
        probabilities.
        """
        return program.latent_means(params)

    def latent_modes(self, program: Program, params: Params) -> Params:
        """The most probable value of every latent, by latent site."""
        return program.latent_modes(params)

    def expected_rows(self, program: Program, params: Params) -> Tensor | None:
        """The program's rows as one expects their entries, latents averaged over their posterior,
        in the shape of the data; None where the description does not say.
        """
        return None

    def laws(self) -> tuple[Any, ...]:
        """Models among which law and number of components are chosen together, the first contained
        in the others; () where no rule counts them.
        """
        return ()

    def recommended(self, problem: Problem) -> Recommendation:
        """Engine, start and restarts where the user names none; a program with discrete latents may
        have several optima.
        """
        program = problem.program()
        sites = [site for site in program.sites if site.kind == "latent"]
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
    """Whether ``value`` is an engine, and not the class of one."""
    return not isinstance(value, type) and callable(getattr(value, "run", None))


@shows_briefly
@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """A model with checked data: what engines are given.

    Args:
        model: the program.
        data: (N, J) tensor, or whatever the program takes.
        item_names: column names, () where data is not a table.
        seed: of everything random in the fit.
        start_given: whether the user gave the parameters to start from.
        structure: what the model says of itself.
        trial: what a trial of the program found out, kept so that there is one.
        looked_at: the program with these data, kept so that it is looked at once; nothing before
            that.
        weights: how often each row of ``data`` counts, (N,); None for once.
        rows: all rows, where they come in blocks and ``data`` is a sample of them; None where
            ``data`` are all.
    """

    model: Callable[..., Any]
    data: Any
    item_names: tuple[str, ...]
    seed: int
    start_given: bool
    structure: Structure
    trial: dict[str, bool] = dataclasses.field(default_factory=dict, repr=False)
    looked_at: list[Program] = dataclasses.field(default_factory=list, repr=False)
    weights: Tensor | None = None
    rows: CheckedRows | None = None

    def program(self) -> Program:
        """The program with all the data."""
        for known in self.looked_at:
            if known.is_of(self.model, self.data):
                return known
        program = Program(self.model, self.data)
        program.share_trial(self.trial)
        self.looked_at[:] = [program]
        return program

    def program_of_one_row(self) -> Program:
        """The program with the first row of the data, where only its parameters matter."""
        return self._of_one_row if checks_data(self.model) else self.program()

    @functools.cached_property
    def _of_one_row(self) -> Program:
        return Program(self.model, map_tensors(operator.itemgetter(slice(1)), self.data))

    def supports(self) -> dict[str, Constraint]:
        """Of the parameters, by site."""
        program = self.program_of_one_row()
        return {name: program.site(name).support for name in program.names("parameter")}

    @property
    def num_rows(self) -> int:
        """Rows of the table, or of the first tensor; all of them, where they come in blocks."""
        return len(first_tensor(self.data)) if self.rows is None else self.rows.num_rows

    def summed(self, of_rows: Callable[[Any, Tensor | None], S]) -> S:
        """What a function makes of rows and their weights, a tensor, dict or record of sums over
        them (:func:`~inference.base.steps.add_statistics`), of all rows.
        """
        return of_rows(self.data, self.weights) if self.rows is None else self.rows.summed(of_rows)

    def summed_at(self, of_rows: Callable[[slice, Any], S]) -> S:
        """As :meth:`summed`, of a function that is told where its rows lie among those in memory,
        or among this process's.
        """
        return (
            of_rows(slice(None), self.data) if self.rows is None else self.rows.summed_at(of_rows)
        )

    def every_weight(self) -> Tensor | None:
        """How often each of all rows counts, (N,); None for once."""
        return self.weights if self.rows is None else self.rows.weights

    def with_data(
        self, change: Callable[[Tensor], Tensor], model: Any, structure: Structure
    ) -> Problem:
        """The problem of another model whose data are these, changed row by row."""
        rows = None if self.rows is None else self.rows.changed(change)
        return dataclasses.replace(
            self, model=model, data=change(self.data), rows=rows, structure=structure, trial={}
        )

    def fingerprint(self, method: Any, start: Params) -> str:
        """A digest of model, data, method, start and seed, by their code and contents.

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
        ]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()


@dataclass(frozen=True, eq=False)
class Standard:
    """A problem in other units of its columns.

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
