r"""Program as a log-density: with its neighbours the only file that opens Pyro traces.

A program has three kinds of sites: *parameters* (continuous, outside the plate over rows),
*latents* (discrete, not observed, enumerated), and *observed* sites; continuous latents inside a
plate over rows are *local*. With the parameters fixed, every latent and observed site contributes
one local factor; eliminating the latents from their product (Pyro's own plated variable
elimination) gives the log-marginal of each row. Because that is differentiable,

.. math:: \frac{\partial \log p(x)}{\partial \log f} = p(\text{configuration of } f \mid x)

is the posterior of factor f: an exact E-step is reverse-mode differentiation of one scalar.

Every function accepts parameters with one leading dim R, for R restarts. A program that broadcasts
is evaluated once for all of them, inside an outermost plate over restarts. One that does not
(``a[z]`` reads the leading dim as the latent's) is run once a restart, and nothing stands in front
of the dims it gave its parameters; which of the two it is, is found out by a trial.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar, cast

import pyro
import torch
from pyro import poutine
from pyro.distributions.util import scale_and_mask
from torch import Tensor
from torch.distributions import biject_to

from inference.programs.chains import Chain, ChainFactors, find_chain
from inference.programs.elimination import (
    FactorPosteriors,
    Factors,
    FiniteMixture,
    LocalTerms,
    SummedPrior,
    differing_site,
    factors_of,
    mixture_of,
    posteriors_of,
    summed_prior,
)
from inference.programs.fixed import Fixed
from inference.programs.global_state import in_dtype, isolated, quiet
from inference.programs.parameters import Flat
from inference.programs.quadrature import MOST_MOVES, SETTLED, NodeSites
from inference.programs.restarts import (
    RESTARTS,
    at,
    in_restarts,
    run_together,
    stacked,
    trace_until,
)
from inference.programs.sites import (
    Site,
    check_dependent,
    check_finite,
    enumerating,
    latents_before,
    sample_nodes,
    sites_of,
    unchanging_distributions,
    unread_imputations,
)
from inference.programs.tree_width import SumPlan
from inference.programs.wrap import (
    DIMS,
    Prepared,
    first_run,
    in_words,
    not_at_once,
    other_density,
    prepared,
)
from ppl_models.data.tables import checks_data, first_tensor, floating_dtype
from ppl_models.parts.repr import listed

MOST_DIMS = 64  # of a tensor that PyTorch compares or multiplies
MOST_NAMED = 6  # latents in a sentence
Params = dict[str, Tensor]
T = TypeVar("T")


class Program:
    """Log-density of a Pyro program with its data, as a function of its parameters.

    Args:
        model: any callable of Pyro primitives whose latents can be enumerated; ``pyro.markov``
            chains included.
        args: the arguments it is called with (the data).

    Whatever sums over latents raises a ValueError, naming the site, if one of them cannot be
    enumerated.
    """

    fixed: Fixed | None = None  # known entries of parameters, which all coordinates lead to
    row_weights: Tensor | None = None  # how often each row counts, (N,); None for once

    def __init__(self, model: Callable[..., Any], *args: Any) -> None:
        self.args, self._given = args, model
        with isolated(0):
            self.model, trace, lines = first_run(model, args)
        self.is_own = checks_data(
            model
        )  # minds dtypes, missing entries and restarts itself, and is tested for it
        self.first_trace = None if self.is_own else trace
        self._trial: dict[str, bool] = (
            {"together": True} if self.is_own else {}
        )  # shared with other data of the program
        self._chains: list[Chain | None] = []  # once looked for, the chain of these data, or None
        self._plans: list[SumPlan] = []  # once looked for, how latents are summed over
        self._set_sites(trace, lines)
        self._use(self.model)
        # of this library's models, which do not choose by values: the first draw of their prior
        self._drawn: dict[str, Any] = (
            {name: trace.nodes[name] for name in self.names("parameter")} if self.is_own else {}
        )
        self._centre_nodes()

    def with_data(self, *args: Any) -> Program:
        """Program with other data (a chunk of rows), its sites as they are."""
        new = object.__new__(Program)
        new.__dict__.update(self.__dict__)
        new.args = args
        if any(arg is not other for arg, other in zip(args, self.args, strict=False)):
            new._chains, new._plans, new.row_weights = [], [], None
            new._centre_nodes()
        return new

    def weighed(self, weights: Tensor | None) -> Program:
        """The same program with rows that count as often as ``weights`` (N,) say."""
        if weights is None:
            return self
        new = self.with_data(*self.args)
        new.row_weights = weights
        return new

    def check_weighable(self) -> None:
        """Refuse weights of rows whose log-likelihood is no sum over one plate.

        Raises:
            ValueError: saying so.
        """
        self.check_enumerable()
        with torch.no_grad(), quiet():
            shape = self.log_marginal_rows(at(self.draw_prior(1, seed=0), 0)).shape
        if shape != (self.num_rows,) or self.latent_prior.joined:
            raise ValueError(
                f"weights: a program of independent rows, {self.num_rows:,} in one plate, was"
                " expected, and the log-likelihood of this one is no sum over such rows: fit it"
                " without weights"
            )

    @property
    def _nodes(self) -> NodeSites | None:
        """Nodes of continuous latents of the rows that are integrated by quadrature."""
        return getattr(self.model, "nodes", None)

    @property
    def integrated(self) -> tuple[str, ...]:
        """Continuous latents of the rows that are integrated by quadrature, in program order."""
        return () if self._nodes is None else tuple(self._nodes.quadrature.dims)

    def _centre_nodes(self) -> None:
        """Centre the nodes of every row at its posterior, where the rule has parameters for it."""
        if self._nodes is None or self._nodes.quadrature.at is None:
            return
        like = floating_dtype(self.args)
        at = {name: value.to(like) for name, value in self._nodes.quadrature.at.items()}
        model = cast("Prepared", self.model)
        self._use(model.centred({}))
        for _ in range(MOST_MOVES):
            centres, way = self._nodes.moved(self.latent_marginals(at))
            self._use(model.centred(centres))
            if way < SETTLED:
                break

    def _use(self, model: Callable[..., Any]) -> None:
        self.model, self._plans = model, []
        self._enumerated_model = poutine.block(enumerating(model), hide=list(self._unread))

    def part(self, data: Any, nesting: int) -> Program:
        """Program on a part of its data, with room for plates, its steps run one by one."""
        new = Program(self.model, data)
        new.max_plate_nesting = max(new.max_plate_nesting, nesting)
        new._chains = [None]
        return new

    def is_of(self, model: Callable[..., Any], *args: Any) -> bool:
        """Tell whether the program is of this very model with these very data."""
        return (
            self._given is model
            and len(args) == len(self.args)
            and all(arg is other for arg, other in zip(args, self.args, strict=True))
        )

    def share_trial(self, trial: dict[str, bool]) -> None:
        """Share the result of a trial with other programs of the same model."""
        if not self.is_own:
            trial.update(self._trial)
            self._trial = trial

    def run_as(self, together: bool) -> Program:
        """The same program with its restarts run as one batch or one by one, whatever it can do."""
        new = self.with_data(*self.args)
        new._trial = {"together": together}
        return new

    def without_latents(self) -> Callable[..., Any]:
        """Pyro model for Pyro's own engines, latents enumerated, or chains summed in a factor."""
        if self.chain is None:
            return self._enumerated_model
        shortest = self._shortest
        others = [site.name for site in shortest.sites if site.kind != "parameter"]

        def model(*_: Any) -> None:
            with poutine.block(hide=others):
                nodes = poutine.trace(shortest.model).get_trace(*shortest.args).nodes
            values = {
                name: torch.as_tensor(nodes[name]["value"]) for name in self.names("parameter")
            }
            name, value = next(iter(values.items()))
            restarts = None if value.dim() == len(self.site(name).shape) else len(value)
            lead = () if restarts is None else (restarts,)
            with poutine.block():
                total = self.log_marginal(
                    {
                        name: value.reshape(lead + self.site(name).shape)
                        for name, value in values.items()
                    }
                )
            pyro.factor(
                "_data", total.reshape(lead + (1,) * self.max_plate_nesting if lead else ())
            )

        return model

    def _set_sites(self, trace: Any, lines: dict[str, str]) -> None:
        self._unread: frozenset[str] = frozenset()
        if not self.is_own:
            with isolated(0), torch.no_grad():
                self._unread = unread_imputations(self.model, self.args, trace)
        self.sites, self.row_plates = sites_of(trace, lines, self.args, self._unread)
        nodes = sample_nodes(trace)
        self.max_plate_nesting = max(
            (-f.dim for node in nodes.values() for f in node["cond_indep_stack"] if f.vectorized),
            default=0,
        )
        self._by_name = {site.name: site for site in self.sites}
        self._names: dict[str, tuple[str, ...]] = {site.kind: () for site in self.sites}
        for site in self.sites:
            self._names[site.kind] += (site.name,)
        self._batch_dims = {name: len(node["fn"].batch_shape) for name, node in nodes.items()}

    def names(self, kind: str) -> tuple[str, ...]:
        """Names of the sites of one kind, in program order."""
        return self._names.get(kind, ())

    @property
    def row_latents(self) -> tuple[str, ...]:
        """Discrete latents that stand in a plate over rows; all where there is no such plate."""
        return tuple(
            name
            for name in self.names("latent")
            if not self.row_plates or self.row_plates & set(self.site(name).plates)
        )

    @property
    def drawn(self) -> dict[str, tuple[int, int]]:
        """Rows that each plate would draw at random, and its size, where it takes all of them."""
        return dict(getattr(self.model, "drawn", {}))

    @cached_property
    def num_rows(self) -> int:
        """Number of rows: the size of their plate.

        Of a loop over a plate that all latents and data stand in, its length. Of several plates
        over rows the one that the data are as long as, else the outermost; without any, the length
        of the data, or 1.
        """
        nodes = {} if self.first_trace is None else sample_nodes(self.first_trace)
        stacks = [
            nodes[site.name]["cond_indep_stack"]
            for site in self.sites
            if site.kind in ("latent", "local", "observed") and nodes
        ]
        loops = [{f.name: f.size for f in stack if not f.vectorized} for stack in stacks]
        for name, size in (loops or [{}])[0].items():
            if all(name in loop for loop in loops):
                return int(size)
        plates = {f.name: f for stack in stacks for f in stack if f.name in self.row_plates}
        shared = [f for f in plates.values() if all(f in stack for stack in stacks)]
        frames = sorted(shared or plates.values(), key=lambda f: f.dim)
        sizes = [f.size for f in frames if f.size > 1]
        table: Any = first_tensor(self.args[0]) if self.args else None
        length = len(table) if getattr(table, "ndim", 0) else 1
        return length if length in sizes or not sizes else int(sizes[0])

    def site(self, name: str) -> Site:
        """Sample site of that name."""
        return self._by_name[name]

    @property
    def chain(self) -> Chain | None:
        """Hidden-chain form of the program, None where it has none; found once."""
        if self._nodes is not None:  # of a sequence, they stand in the way of a scan over its steps
            return None
        if not self._chains:
            self._chains.append(find_chain(self))
        return self._chains[0]

    @property
    def is_chain(self) -> bool:
        """Tell whether the latents are hidden chains that one scan sums out."""
        return self.chain is not None

    @property
    def _shortest(self) -> Program:
        """Program with as few steps as show all of its parameters."""
        return self if self.chain is None else self.chain.first

    # ---------------------------------------------------------------- running

    def _num_restarts(self, params: Params) -> int | None:
        for site in self.sites:
            if site.kind in ("parameter", "local") and site.name in params:
                value = params[site.name]
                return None if value.dim() == len(site.shape) else value.shape[0]
        return None

    def broadcasts(self) -> bool:
        """Tell whether two restarts together give what each gives alone.

        Found out once, on a few rows of a table.
        """
        if "together" not in self._trial:
            self._trial["together"] = run_together(self)
        return self._trial["together"]

    def _each(self, ask: Callable[..., T], params: Params, *others: Any) -> T:
        """Apply ``ask`` to all restarts as a batch, or to each alone, stacked."""
        restarts = self._num_restarts(params)
        if restarts is None or (restarts > 1 or self.is_own) and self.broadcasts():
            return ask(params, *others)
        return cast(
            "T",
            stacked([ask(*(at(value, r) for value in (params, *others))) for r in range(restarts)]),
        )

    def _in_program_shape(self, params: Params, restarts: int | None) -> Params:
        """Insert the plate dims between restarts and a site's own shape."""
        if restarts is None:
            return params
        out = {}
        for name, value in params.items():
            pad = self.max_plate_nesting - self._batch_dims[name]
            out[name] = value.reshape(value.shape[:1] + (1,) * pad + value.shape[1:])
        return out

    def _trace(
        self,
        params: Params,
        enumerate_latents: bool,
        fixed: Params | None = None,
        needs_local: bool = True,
        room: int = 0,
        until: Collection[str] = (),
    ) -> Any:
        """Run of the program at given values, up to the site after those of ``until``, if given."""
        if enumerate_latents:
            check_finite(self.sites)
        for site in self.sites:
            if (
                site.kind == "parameter" or (site.kind == "local" and needs_local)
            ) and site.name not in params:
                raise ValueError(
                    f"params: {site.kind} site {site.name!r} needs a value, got only"
                    f" {sorted(params)}"
                )
        restarts = self._num_restarts(params)
        values = self._in_program_shape(params, restarts) | (fixed or {})
        model = self._enumerated_model if enumerate_latents else self.model
        model = poutine.condition(model, values)
        if restarts is not None:
            model = in_restarts(model, restarts, self.max_plate_nesting)
        if enumerate_latents:
            model = poutine.enum(
                model,
                first_available_dim=-1 - max(room, self.max_plate_nesting) - (restarts is not None),
            )
        # shapes and supports were validated at the first look; what nobody asks for is drawn
        with isolated(), pyro.validation_enabled(False):
            try:
                return (
                    trace_until(model, self.args, until)
                    if until
                    else poutine.trace(model).get_trace(*self.args)
                )
            except Exception as error:  # the program's own, whatever it is
                if self.is_own or not enumerate_latents:
                    raise
                raise ValueError(not_at_once(self._latents_in_words, error)) from error

    @property
    def _latents_in_words(self) -> str:
        return listed(map(repr, self.names("latent")), MOST_NAMED)

    def check_enumerable(self) -> None:
        """Refuse a program whose latents cannot be summed out, naming the first."""
        check_finite(self.sites)
        if self.is_own or "enumerated" in self._trial or not self.names("latent") or self.is_chain:
            return
        latents = self._latents_in_words
        with torch.no_grad(), quiet():
            point = at(self.draw_prior(1, seed=0, local=True), 0)
            trace = self._trace(point, enumerate_latents=True)
            try:
                with self._unchecked():
                    for site in self.sites:
                        node = trace.nodes[site.name]
                        if node["fn"].log_prob(node["value"]).dim() > MOST_DIMS:
                            raise RuntimeError(DIMS)
            except Exception as error:  # the program's own, whatever it is
                raise ValueError(not_at_once(latents, error)) from error
            factors = self._eliminated(point)
            factors.log_total()
            deaf = self._deaf_site(point, factors)
        if deaf is not None:
            raise ValueError(other_density(deaf, self.site(deaf).line, latents))
        self._trial["enumerated"] = True

    def _deaf_site(self, params: Params, factors: Factors) -> str | None:
        """First site whose density over all latent values is not that of each value alone."""
        for k in (0, 1):
            fixed = {
                name: factors.values(name)[: k + 1][-1].expand(self.site(name).shape)
                for name in factors.enumerated
            }
            alone = self._trace(params, enumerate_latents=False, fixed=fixed).nodes
            sites = [site.name for site in self._summed_sites()]
            with pyro.validation_enabled(False):
                site_name = differing_site(
                    sites, alone, factors.trace.nodes, self.max_plate_nesting, k
                )
            if site_name is not None:
                return site_name
        return None

    # ---------------------------------------------------------------- densities

    @cached_property
    def latent_prior(self) -> SummedPrior:
        """Sites over which the density of the parameters is summed, as a run shows.

        Raises:
            ValueError: see :func:`inference.programs.sites.check_dependent`.
        """
        if self.first_trace is None or not latents_before(self.sites):
            return SummedPrior()
        first = self.first_trace.nodes
        values = {name: first[name]["value"].detach() for name in self.names("parameter")}
        room = max(self.max_plate_nesting, *(self._batch_dims[name] for name in self._by_name))
        with torch.no_grad(), quiet():
            trace = self._trace(values, True, needs_local=False, room=room)
            log_probs = {}
            with self._unchecked():
                for name in self._by_name:
                    node = trace.nodes[name]
                    log_probs[name] = scale_and_mask(
                        node["fn"].log_prob(node["value"]), mask=node["mask"]
                    )
        summed = summed_prior(trace, log_probs, self.sites, self.row_plates)
        for name in summed.dependent:
            check_dependent(self.site(name), first[name], trace.nodes[name], room)
        return summed

    def _summed_sites(self) -> list[Site]:
        """All sites but parameters, and factors of them, that depend on no latent."""
        return [
            site
            for site in self.sites
            if site.kind not in ("parameter", "factor") or site.name in self.latent_prior.dependent
        ]

    def log_prior(self, params: Params) -> Tensor:
        """Log prior density of the parameters, latents above them summed out, () or (R,)."""
        if self.is_own and self._priors is not None and params.keys() >= self._priors.keys():
            # made without checks, which ask about values at the cost of the density
            every = (density(params[name]) for name, density in self._priors.items())
            return _total(every, self._num_restarts(params))
        return self._each(self._log_prior_of, params)

    @cached_property
    def _priors(self) -> dict[str, Callable[[Tensor], Tensor]] | None:
        """Log-densities of the parameters, where none depends on another's value.

        Of this library's models, which do not choose by values.
        """
        if not self.is_own or self.chain is not None:
            return None
        with isolated(1), pyro.validation_enabled(False), torch.no_grad():
            second = poutine.trace(self.model).get_trace(*self.args)
            return unchanging_distributions(self._drawn, second.nodes)

    def _log_prior_of(self, params: Params) -> Tensor:
        restarts = self._num_restarts(params)
        if self.chain is not None:
            return self.chain.log_prior(params, restarts is not None)
        if self.latent_prior.sites:
            return self._eliminated(params, names=self.latent_prior.sites).log_prior
        # the rest of a program, its latents and rows, is not run where its sites are known
        until = self.names("parameter") + self.names("factor") if self.is_own else ()
        trace = self._trace(params, enumerate_latents=False, needs_local=False, until=until)
        return self._log_prior(trace, restarts)

    def log_prior_local(self, params: Params) -> Tensor:
        """Log density of the local sites given in ``params``, () or (R,); 0 where there are none.

        For distributions without a latent.
        """
        if not self.names("local"):
            restarts = self._num_restarts(params)
            return next(iter(params.values())).new_zeros(() if restarts is None else (restarts,))
        return self._each(self._log_prior_local_of, params)

    def _log_prior_local_of(self, params: Params) -> Tensor:
        return _total(
            self._log_probs(self._trace(params, enumerate_latents=False), "local"),
            self._num_restarts(params),
        )

    @contextmanager
    def _unchecked(self) -> Iterator[None]:
        """Densities of a user's program, without Pyro's checks: its data were checked before.

        In the dtype of the data, which functions of whole numbers (``lgamma`` of counts) have else
        from the caller's default, mostly single precision.
        """
        if self.is_own:
            yield
        else:
            with in_dtype(self._dtype), pyro.validation_enabled(False):
                yield

    @cached_property
    def _dtype(self) -> torch.dtype:
        """Dtype in which factors are multiplied: of the data, whatever a constant factor has."""
        return floating_dtype(self.args)

    def _log_probs(self, trace: Any, *kinds: str, but: Collection[str] = ()) -> list[Tensor]:
        """Log-densities of the sites of these kinds, scaled and masked."""
        nodes = [
            trace.nodes[site.name]
            for site in self.sites
            if site.kind in kinds and site.name not in but
        ]
        with self._unchecked():
            return [
                scale_and_mask(node["fn"].log_prob(node["value"]), node["scale"], node["mask"])
                for node in nodes
            ]

    def _log_prior(self, trace: Any, restarts: int | None) -> Tensor:
        """Log-prior of parameters that depend on no latent, and factors of them."""
        free = self._log_probs(trace, "parameter", "factor", but=self.latent_prior.dependent)
        return _total(free, restarts)

    def _fixed(self, latents: Params, restarts: int | None) -> Params:
        for name in self.names("latent"):
            if name not in latents:
                raise ValueError(
                    f"latents: site {name!r} needs a value, got only {sorted(latents)}"
                )
        lead = () if restarts is None else (restarts,)
        return {
            name: value.reshape(lead + self.site(name).shape) for name, value in latents.items()
        }

    def log_joint(self, params: Params, latents: Params) -> Tensor:
        """Log-density of parameters, latents and data, () or (R,)."""
        return self._each(self._log_joint_of, params, latents)

    def _log_joint_of(self, params: Params, latents: Params) -> Tensor:
        restarts = self._num_restarts(params)
        trace = self._trace(params, enumerate_latents=False, fixed=self._fixed(latents, restarts))
        every = self._log_probs(trace, "parameter", "factor", "latent", "local", "observed")
        return _total(every, restarts)

    def log_joint_rows(self, params: Params, latents: Params) -> Tensor:
        """Log-density of each row and its latents, ([R], N), in one plate over the rows."""
        return self._each(self._log_joint_rows_of, params, latents)

    def _log_joint_rows_of(self, params: Params, latents: Params) -> Tensor:
        fixed = self._fixed(latents, self._num_restarts(params))
        trace = self._trace(params, enumerate_latents=False, fixed=fixed)
        return sum(self._log_probs(trace, "latent", "local", "observed"), torch.zeros(()))

    def local_terms(
        self,
        params: Params,
        fixed: Params | None = None,
        first: int = 0,
        unread: str | None = None,
        names: Collection[str] | None = None,
    ) -> LocalTerms:
        """The log-density of every site that may depend on latents, from the ``first`` on.

        Args:
            params: of one point or restarts; fixed: values of the latents, None for all at once.
            unread: a site whose density nobody reads, which is zero.
            names: of the sites asked for, none a continuous latent of the rows; None for all.
        """
        trace = self._trace(params, fixed is None, fixed, needs_local=names is None)
        log_probs = {}
        with self._unchecked():
            for site in self._summed_sites()[first:]:
                if names is not None and site.name not in names:
                    continue
                node = trace.nodes[site.name]
                log_prob = torch.zeros(())
                if site.name != unread:
                    log_prob = node["fn"].log_prob(node["value"])
                    log_prob = log_prob if self.is_own else log_prob.to(self._dtype)
                log_probs[site.name] = (
                    log_prob
                    if node["mask"] is None or site.kind == "latent"
                    else scale_and_mask(log_prob, mask=node["mask"])
                )
        log_prior = self._log_prior(trace, self._num_restarts(params))
        return LocalTerms.of(trace, log_probs, log_prior, self.latent_prior)

    def _factors(self, params: Params) -> Factors | ChainFactors:
        factors: Factors | ChainFactors = (
            self._eliminated(params)
            if self.chain is None
            else self.chain.factors(params, self._num_restarts(params) is not None)
        )
        return replace(factors, row_weights=self.row_weights)

    def _eliminated(
        self, params: Params, unread: str | None = None, names: Collection[str] | None = None
    ) -> Factors:
        run = self.local_terms(params, unread=unread, names=names)
        for name in self.names("parameter"):
            if name not in run.log_probs:
                run.trace.remove_node(name)
        restarts = None if self._num_restarts(params) is None else RESTARTS
        factors = factors_of(run, self.latent_prior, restarts, self._by_name)
        if self.is_own:
            return factors
        if not self._plans and unread is None and names is None:
            self._plans.append(factors.plan())
        return factors.planned(self._plans[0]) if self._plans else factors

    # ---------------------------------------------------------------- marginals and posteriors

    def log_marginal_rows(self, params: Params) -> Tensor:
        """Log-likelihood of each row given the parameters, latents summed out, (R, N) or (N,).

        Without a common plate (R,) or ().
        """
        return self._each(lambda values: self._factors(values).log_rows(), params)

    def log_marginal(self, params: Params) -> Tensor:
        """Log-likelihood with latents summed out, () or (R,); rows as often as their weights say.

        Scaled up for a mini-batch.
        """
        return self._each(lambda values: self._factors(values).log_total(), params)

    def factor_posteriors(self, params: Params) -> FactorPosteriors:
        """Posterior of every local factor, by differentiating the log-marginal."""
        return self._each(self._factor_posteriors_of, params)

    def _factor_posteriors_of(self, params: Params) -> FactorPosteriors:
        with torch.no_grad():
            return posteriors_of(self._factors(params))

    def expected_complete_log_density(self, params: Params, posteriors: FactorPosteriors) -> Tensor:
        """Expected complete log-density under fixed factor posteriors, () or (R,)."""
        return self._each(
            lambda values, posterior: self._factors(values).expected(posterior.weights),
            params,
            posteriors,
        )

    def expected_log_joint(
        self, params: Params, posteriors: FactorPosteriors, prior_share: float = 1.0
    ) -> Tensor:
        """Expected log-joint with a share of the prior of the parameters, () or (R,)."""

        def both(values: Params, posterior: FactorPosteriors) -> Tensor:
            factors = self._factors(values)
            log_prior = factors.expected_prior(posterior.weights)
            return factors.expected(posterior.weights) + (
                log_prior if prior_share == 1.0 else prior_share * log_prior
            )

        return self._each(both, params, posteriors)

    def latent_marginals(self, params: Params) -> dict[str, Tensor]:
        """Marginals P(latent = value | data), ([R], N, num_values), by latent site."""
        with torch.no_grad():
            return self._each(lambda values: self._factors(values).marginals(), params)

    def latents_above(self, params: Params) -> Params:
        """Draw of the latents that parameters depend on, given one set of parameters."""
        if not self.latent_prior.sites:
            return {}
        with torch.no_grad():
            factors = self._eliminated(params, names=self.latent_prior.sites)
            return {
                name: factors.values(name)[index].reshape(self.site(name).shape)
                for name, index in factors.draw().items()
            }

    def sample_latents(self, params: Params, num_draws: int = 1) -> dict[str, Tensor]:
        r"""Draw latents jointly given data and parameters, (num_draws, \*site shape)."""
        draws: dict[str, list[Tensor]] = {name: [] for name in self.names("latent")}
        with torch.no_grad():
            factors = self._factors(params)
            for _ in range(num_draws):
                for name, index in factors.draw().items():
                    draws[name].append(factors.values(name)[index].reshape(self.site(name).shape))
        return {name: torch.stack(values) for name, values in draws.items()}

    def latent_values(self, params: Params) -> dict[str, Tensor]:
        """The enumerated support of every latent site, (num_values, `*event`)."""
        if self._num_restarts(params) is not None and not self.is_own:  # the same for all
            params = at(params, 0)
        with torch.no_grad():
            factors = self._factors(params)
        return {name: factors.values(name) for name in factors.enumerated}

    def latent_means(self, params: Params) -> dict[str, Tensor]:
        r"""Posterior mean of every latent, (N, \*event); probabilities of a categorical one."""
        marginals = self.latent_marginals(params)
        out = {name: mean for name, (mean, _) in self.integrated_moments(params).items()}
        for name, values in self.latent_values(params).items():
            if name in out:
                continue
            is_vector = values.dim() > 1
            weights = values if is_vector else torch.eye(len(values))
            mean = marginals[name] @ weights.to(marginals[name])
            out[name] = mean.clamp(weights.min(), weights.max())  # rounding may leave the range
        return out

    def latent_modes(self, params: Params) -> dict[str, Tensor]:
        r"""Most probable values of the latents, (N, \*event).

        Of a user's program jointly over all of them, the path of a chain; of others, and where
        continuous latents are integrated, site by site, jointly over a vector.
        """
        if not self.is_own and not self.integrated:
            with torch.no_grad():
                factors = self._factors(params)
                return {
                    name: factors.values(name)[index]  # without dims of one entry
                    for name, index in factors.likeliest().items()
                }
        marginals = self.latent_marginals(params)
        return {
            name: values[marginals[name].argmax(-1)]
            for name, values in self.latent_values(params).items()
            if name not in self.integrated
        }

    def integrated_moments(self, params: Params) -> dict[str, tuple[Tensor, Tensor]]:
        r"""Posterior mean and standard deviation of continuous latents of rows, ([R], N, \*event).

        The derivative of :math:`\log \int e^{t u} p(x, u) \, du` by t at nought is the mean of u;
        with :math:`(u - E u)^2` in its place it is the variance.
        """
        if self._nodes is None:
            return {}
        restarts = self._num_restarts(params)
        if restarts is not None:
            each = [self.integrated_moments(at(params, r)) for r in range(restarts)]
            return {
                name: (stacked([m[name][0] for m in each]), stacked([m[name][1] for m in each]))
                for name in self.integrated
            }
        with torch.no_grad():
            factors = self._eliminated(params)
        values = {name: value.detach() for name, value in self._nodes.values.items()}
        means = _expected_values(factors, values)
        apart = {}
        for name, value in values.items():
            mean = means[name].reshape(means[name].shape[:-1] + value.shape[-1:])
            apart[name] = (value - mean).square()
        squares = _expected_values(factors, apart)
        shapes = self._nodes.shapes
        return {
            name: (
                means[name].reshape(shapes[name][1]),
                squares[name].clamp(min=0).sqrt().reshape(shapes[name][1]),
            )
            for name in self.integrated
        }

    # ---------------------------------------------------------------- rows as a finite mixture

    def as_mixture(self, params: Params) -> FiniteMixture | None:
        """The program as a finite mixture over rows, or None if it is not one.

        It is one when a single :class:`~ppl_models.parts.responses.ItemResponse` is observed, its
        predictor depends on one latent site and on no row. Where another factor depends on the row,
        as a distribution of latents given covariates does, so do the weights.
        """
        observed = self.names("observed")
        if self.max_plate_nesting != 1 or len(observed) != 1 or self.names("local"):
            return None
        if self.is_chain or self.latent_prior.sites:
            return None
        if not (self._num_restarts(params) is None or self.is_own or self.broadcasts()):
            return None
        with torch.no_grad():
            factors = self._eliminated(params, unread=observed[0])
        return mixture_of(factors, observed[0])

    # ---------------------------------------------------------------- parameters

    def unconstrained(self, params: Params) -> Params:
        """Parameters mapped to the whole real line, site by site; known entries anywhere."""
        params = params if self.fixed is None else self.fixed.inside(params)
        return {
            name: biject_to(self.site(name).support).inv(value) for name, value in params.items()
        }

    def constrained(self, free: Params) -> Params:
        """Constrained parameters, the inverse of :meth:`unconstrained`; known entries as given."""
        out = {name: biject_to(self.site(name).support)(value) for name, value in free.items()}
        return out if self.fixed is None else self.fixed.restored(out)

    def inside(self, params: Params) -> Tensor:
        """Mask of parameters (D, ...) inside the supports of their sites, (D,)."""
        held = [self.site(name).support.check(value) for name, value in params.items()]
        return torch.stack([flags.reshape(len(flags), -1).all(-1) for flags in held]).all(0)

    def centre(self, params: Params) -> Params:
        """Unconstrained point from which parameters start: zero, or where the program says so.

        Args:
            params: (R, ...), for shapes and dtype.
        """
        free = {name: torch.zeros_like(value) for name, value in self.unconstrained(params).items()}
        for name, start in self.starts.items():
            if name in params:
                free_start = self.unconstrained({name: start.to(params[name])})[name]
                free[name] = free_start.expand(free[name].shape).clone()
        return free

    @cached_property
    def starts(self) -> Params:
        """Values at which the program starts its parameters without a prior."""
        nodes = {} if self.first_trace is None else sample_nodes(self.first_trace)
        return {name: n["fn"].start for name, n in nodes.items() if isinstance(n["fn"], Flat)}

    def refuse_flat(self, caller: str) -> None:
        """Refuse draws from a prior that some parameter does not have.

        Raises:
            ValueError: naming it.
        """
        for name in self.starts:
            raise ValueError(
                f"{caller}: parameters with a prior to draw from were expected, and {name!r} is a"
                f" pyro.param statement, which has none: write pyro.sample({name!r}, ...)"
            )

    def draw_prior(self, num_draws: int, seed: int, local: bool = False) -> Params:
        r"""Draw parameters from the prior, (num_draws, \*shape), and local latents if asked."""
        names = [
            site.name
            for site in self.sites
            if site.kind == "parameter" or (local and site.kind == "local")
        ]
        shortest = self._shortest
        if shortest is self and (num_draws, seed) == (1, 0) and self._drawn.keys() >= set(names):
            return {name: self._drawn[name]["value"].detach().unsqueeze(0) for name in names}
        draws: dict[str, list[Tensor]] = {name: [] for name in names}
        with isolated(seed), nullcontext() if self.is_own else in_words(self.model):
            for _ in range(num_draws):
                trace = poutine.trace(shortest.model).get_trace(*shortest.args)
                for name, values in draws.items():
                    values.append(_value(trace, name).detach())
        stacked = {name: torch.stack(values) for name, values in draws.items()}
        return (
            stacked
            if self.is_own
            else {name: value.to(floating_dtype(self.args)) for name, value in stacked.items()}
        )

    def simulate(self, params: Params, seed: int) -> dict[str, Tensor]:
        """Simulate latents and data given parameters; the program's arguments hold no data."""
        return simulate(self.model, params, seed, *self.args)


def simulate(model: Callable[..., Any], params: Params, seed: int, *args: Any) -> dict[str, Tensor]:
    """Simulate every site that ``params`` does not fix, from any program.

    A family without data draws in double precision on the CPU; what it drew lies where ``params``
    do.
    """
    home = next((value.device for value in params.values()), None)
    if checks_data(model):  # it draws in the precision and on the device of its data
        like = first_tensor(args[0]) if args else None
        place = like.device if isinstance(like, Tensor) else torch.device("cpu")
        params = {
            name: value.to(place, floating_dtype(args) if value.is_floating_point() else None)
            for name, value in params.items()
        }
    ready = prepared(model, floating_dtype([args, params]))
    ready = getattr(ready, "drawing", ready)
    with isolated(seed), torch.no_grad():
        ready, trace, lines = first_run(ready, args, params)
    above = set() if checks_data(model) else latents_before(sites_of(trace, lines, args)[0], params)
    if above:  # drawn given the parameters, which depend on them
        others = {
            name: node["value"]
            for name, node in sample_nodes(trace).items()
            if not node["is_observed"] and name not in above
        }
        program = Program(poutine.condition(ready, others), *args)
        with isolated(seed), torch.no_grad():
            _, trace, _ = first_run(ready, args, params | program.latents_above(params))
    return {
        name: _value(trace, name).to(home) for name in sample_nodes(trace) if name not in params
    }


def _expected_values(factors: Factors, values: Params) -> Params:
    """Posterior means (*rows, d) of values (*batch, d) that continuous latents have."""
    tilts = {
        name: value.new_zeros(factors.trace.nodes[name]["fn"].batch_shape + value.shape[-1:])
        for name, value in values.items()
    }
    with torch.enable_grad():
        terms = dict(factors.terms)
        for name, tilt in tilts.items():
            terms[name] = terms[name] + (tilt.requires_grad_() * values[name]).sum(-1)
        total = replace(factors, terms=terms).log_rows().sum()
        means = torch.autograd.grad(total, list(tilts.values()))
    return dict(zip(tilts, means, strict=True))


def _total(log_probs: Iterable[Tensor], restarts: int | None) -> Tensor:
    sums = [
        value
        if value.dim() == (restarts is not None)
        else (value.sum() if restarts is None else value.reshape(restarts, -1).sum(-1))
        for value in log_probs
    ]
    return sum(sums[1:], sums[0]) if sums else torch.zeros(())


def _value(trace: Any, name: str) -> Tensor:
    value: Tensor = trace.nodes[name]["value"]
    return value
