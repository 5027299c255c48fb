r"""Hidden chains of a user's own program, summed out by one scan and not step by step.

A ``pyro.markov`` loop whose steps are all alike says everything about itself in two of them. The
program is run on the first step of all sequences, and once on all pairs of neighbouring steps,
which stand in the place of sequences; the second step of every pair then gives, for all times
together,

.. math:: \log p(z_t \mid z_{t-1}) , \qquad \log p(x_t \mid z_t, x_{t-1}) ,

and the first run :math:`\log p(z_1)` and :math:`\log p(x_1 \mid z_1)`. Several latents of one step
are one latent of all their values. The sum over paths is that of
:func:`ppl_models.sequences.hidden_chain.log_chain`, and posteriors are its derivatives, as they are
of any program.

Whether the steps are alike is not read off the program but tried, before anything rests on it: at
random parameters the factors of every step, as the program has them when it is run through all its
steps along random paths of the latents (and along those that make every move), must be those of the
pairs; and on the first steps the sum over paths must be that of variable elimination. A program
that looks at the time, at more than one step before, or at what it carries along, differs there and
keeps its steps, and so does one whose moves depend on the sequence or the time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from inference.programs.elimination import LocalTerms, narrow_repeated, support_of
from inference.programs.global_state import quiet
from inference.programs.restarts import inner_points
from inference.programs.time_windows import Layout, layouts
from ppl_models.data.tables import floating_dtype, map_tensors
from ppl_models.sequences.hidden_chain import log_chain

logger = logging.getLogger(__name__)
Params = dict[str, Tensor]
T = TypeVar("T")
DATA_OF = Tensor.data.__get__  # type: ignore[attr-defined]

LEAST_STEPS = 8  # of shorter loops the steps are run one by one
MOST_VALUES = 128  # of all latents of a step together
SHORT = 4  # steps on which the sum over paths is compared with variable elimination
MOST_TRIED = 2**20  # entries of the paths of a trial
NUM_RANDOM = 4  # paths of a trial that are random
NEAR = 1e-9  # absolutely and relatively, in double precision


class _Differs(Exception):
    """Error: a program fails the test of a hidden chain."""


class _ShapesOfData(TorchFunctionMode):
    """Shape of ``value.data`` under vmap, which Pyro asks for: the detached value's."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0].detach() if func == DATA_OF else func(*args, **(kwargs or {}))


def _of_all(ask: Callable[[Params], T], params: Params) -> T:
    """Batch a question about one restart over all of them, with a leading dim."""
    with _ShapesOfData():
        values: T = torch.func.vmap(ask)(params)
        return values


@dataclass(frozen=True, eq=False)
class ChainFactors:
    """Factors of a chain at R parameters, as :class:`inference.programs.elimination.Factors`.

    Args:
        chain: whose.
        terms: "first" (R, N, K), log p(z_1); "moves" (R, K, K), log p(z_t | z_{t-1}); "densities"
            (R, N, T, K), log p(x_t | z_t).
        log_prior: of the parameters, (R,) or ().
        is_batch: whether there are restarts.
        row_weights: how often each sequence counts, (N,); None for once.
    """

    chain: Chain
    terms: dict[str, Tensor]
    log_prior: Tensor
    is_batch: bool
    row_weights: Tensor | None = None

    scale = 1.0

    @property
    def enumerated(self) -> dict[str, int]:
        """Position of each latent site among the latents of its step."""
        return {name: place for step in self.chain.latents for place, name in enumerate(step)}

    def values(self, name: str) -> Tensor:
        """Support values of a latent site, (num_values, `*event`)."""
        return self.chain.supports[self.enumerated[name]]

    def log_rows(self) -> Tensor:
        """Log-marginal of each sequence, (R, N); without a plate (R,)."""
        return self._shaped(self._log_sequences())

    def log_total(self) -> Tensor:
        """Log-marginal of all sequences, (R,) or ()."""
        rows = self._log_sequences()
        total = (rows if self.row_weights is None else rows * self.row_weights).sum(-1)
        return total if self.is_batch else total[0]

    def expected(self, weights: Mapping[str, Tensor]) -> Tensor:
        """Expected log-density of latents and data under posteriors of the factors, (R,) or ()."""
        products = (
            torch.where(weights[name] == 0, torch.zeros_like(term), weights[name] * term)
            for name, term in self.terms.items()
        )  # 0 * -inf is 0
        total = sum((product.flatten(1).sum(1) for product in products), torch.zeros(()))
        return total if self.is_batch else total[0]

    def expected_prior(self, weights: Mapping[str, Tensor]) -> Tensor:
        """Log-density of the parameters, which depends on no latent, (R,) or ()."""
        return self.log_prior

    def marginals(self) -> dict[str, Tensor]:
        """P(latent = each of its values | data), (R, N, num_values), for every latent site."""
        densities = self.terms["densities"].detach().clone().requires_grad_()
        with torch.enable_grad():
            (joint,) = torch.autograd.grad(
                replace(self, terms=self.terms | {"densities": densities})._log_sequences().sum(),
                densities,
            )
        joint = joint.clamp(min=0.0)
        joint = (
            (joint / joint.sum(-1, keepdim=True)).unflatten(-1, self.chain.sizes).movedim(2, 0)
        )  # (T, R, N, K_1, K_2, ...)
        places = range(len(self.chain.sizes))
        by_place = [
            joint.movedim(3 + place, 3).flatten(4).sum(-1) if len(places) > 1 else joint
            for place in places
        ]  # (T, R, N, K_place)
        return {
            name: self._shaped(by_place[place][t])
            for t, step in enumerate(self.chain.latents)
            for place, name in enumerate(step)
        }

    def draw(self) -> dict[str, Tensor]:
        """Draw the latents jointly: forward filtering, backward sampling; support indices."""
        moves = self.terms["moves"][0]
        return self._path(
            self._filtered,
            [moves] * len(self._filtered),
            lambda logits: torch.distributions.Categorical(logits=logits).sample(),
        )

    def likeliest(self) -> dict[str, Tensor]:
        """Most probable path of the latents, by Viterbi's recursion; support indices.

        Latents that a mask hides, such as those behind the end of a sequence, count for nothing.
        """
        moves, seen = self.terms["moves"][0], self.chain.seen
        by_step = [
            moves
            if bool(s.all())
            else torch.where(s[:, None, None], moves, torch.zeros_like(moves))
            for s in seen.mT
        ]
        return self._path(
            self._forward(by_step, lambda moved: moved.amax(-2)),
            by_step,
            lambda logits: logits.argmax(-1),
        )

    def _path(
        self,
        forward: Sequence[Tensor],
        moves: Sequence[Tensor],
        chosen: Callable[[Tensor], Tensor],
    ) -> dict[str, Tensor]:
        """Latents of a path from its end backwards, each chosen by log-weights (N, K)."""
        path, rows = [chosen(forward[-1])], torch.arange(len(forward[-1]))
        for t in range(len(forward) - 1, 0, -1):
            to = moves[t].expand(len(rows), -1, -1)[rows, :, path[-1]]  # (N, K)
            path.append(chosen(forward[t - 1] + to))
        out: dict[str, Tensor] = {}
        for states, names in zip(reversed(path), self.chain.latents, strict=True):
            out |= dict(zip(names, torch.unravel_index(states, self.chain.sizes), strict=True))
        return (
            out if self.chain.layout.has_rows else {name: value[0] for name, value in out.items()}
        )

    @cached_property
    def _filtered(self) -> list[Tensor]:
        """Forward log-probabilities log p(z_t, x_1, ..., x_t) of one restart, each (N, K)."""
        moves = [self.terms["moves"][0]] * self.terms["densities"].shape[2]
        return self._forward(moves, lambda moved: moved.logsumexp(-2))

    def _forward(self, moves: Sequence[Tensor], over: Callable[[Tensor], Tensor]) -> list[Tensor]:
        """Sums or maxima of log p(z_1, ..., z_t, x_1, ..., x_t) over paths to z_t, each (N, K)."""
        first, densities = self.terms["first"][0], self.terms["densities"][0]
        out = [first + densities[:, 0]]
        for t in range(1, densities.shape[1]):
            out.append(over(out[-1].unsqueeze(-1) + moves[t]) + densities[:, t])
        return out

    def _log_sequences(self) -> Tensor:
        densities = self.terms["densities"]
        begin = densities[:, :, :1] + self.terms["first"].unsqueeze(2)
        moves = self.terms["moves"].exp()
        return log_chain(
            torch.ones_like(moves[:, 0]), moves, torch.cat([begin, densities[:, :, 1:]], 2)
        )

    def _shaped(self, value: Tensor) -> Tensor:
        """Reshape (R, N, ...), dropping dims that the chain does not have."""
        value = value if self.chain.layout.has_rows else value.squeeze(1)
        return value if self.is_batch else value[0]


@dataclass(frozen=True, eq=False)
class Chain:
    """Hidden-chain form of a program whose latents are states, one chain a sequence.

    Args:
        layout: of its data.
        latents: names of the latent sites of every step.
        sizes: values of each latent of a step.
        supports: of each of them, (num_values, `*event`).
        first: the program on the first step of all sequences; pairs: on all pairs of neighbouring
            steps.
        num_rows, num_steps: N and T.
        row_dim: the dim of the sequences in a site.
    """

    layout: Layout
    latents: tuple[tuple[str, ...], ...]
    sizes: tuple[int, ...]
    supports: tuple[Tensor, ...]
    first: Any
    pairs: Any
    num_rows: int
    num_steps: int
    row_dim: int

    @classmethod
    def build(cls, program: Any, layout: Layout, row_dim: int) -> Chain:
        """Build the chain of a program's data, as it is if its steps are alike."""
        (data,) = program.args
        sizes = layout.sizes(data)
        if sizes is None:
            raise _Differs
        nesting = (
            max(program.max_plate_nesting, -row_dim) + 1
        )  # with room for the plate that a user's run stands in, such as an ELBO's particles
        first, pairs = (
            program.part(layout.first(data), nesting),
            program.part(layout.pairs(data), nesting),
        )
        sites, local = _local(first), _local(program)
        if (
            len(_local(pairs)) != 2 * len(sites)
            or len(local) != sizes[1] * len(sites)
            or set(pairs.names("parameter")) != set(program.names("parameter"))
        ):
            raise _Differs
        steps = [local[t : t + len(sites)] for t in range(0, len(local), len(sites))]
        if any(
            [(s.kind, s.num_values) for s in step] != [(s.kind, s.num_values) for s in sites]
            for step in steps
        ):
            raise _Differs
        latents = tuple(
            tuple(site.name for site in step if site.kind == "latent") for step in steps
        )
        values = tuple(site.num_values for site in sites if site.kind == "latent")
        supports = tuple(support_of(first.first_trace.nodes[name]) for name in latents[0])
        return cls(layout, latents, values, supports, first, pairs, *sizes, row_dim)

    def factors(self, params: Params, is_batch: bool) -> ChainFactors:
        """Factors of all steps at parameters, (R, ...) in a batch of restarts."""
        if is_batch:
            terms, log_prior = _of_all(self._terms, params)
            return ChainFactors(self, terms, log_prior, True)
        terms, log_prior = self._terms(params)
        return ChainFactors(
            self, {name: term.unsqueeze(0) for name, term in terms.items()}, log_prior, False
        )

    @cached_property
    def seen(self) -> Tensor:
        """Mask of the steps whose latents count, (N, T); those under a mask do not."""
        parts = []
        for program, step, rows in (
            (self.first, 0, self.num_rows),
            (self.pairs, 1, self.num_rows * (self.num_steps - 1)),
        ):
            latents = [site.name for site in _local(program) if site.kind == "latent"]
            node = program.first_trace.nodes[latents[step * len(self.sizes)]]
            mask = True if node["mask"] is None else node["mask"]
            mask = _arranged(torch.as_tensor(mask), node, [self.row_dim], program.max_plate_nesting)
            parts.append(mask.expand(rows).reshape(self.num_rows, -1))
        return torch.cat(parts, 1)

    def log_prior(self, params: Params, is_batch: bool) -> Tensor:
        """Log-prior of the parameters, (R,) or ()."""

        def local_prior(values: Params) -> Tensor:
            return cast(Tensor, self.first.local_terms(values).log_prior)

        return _of_all(local_prior, params) if is_batch else local_prior(params)

    def _terms(self, params: Params) -> tuple[Params, Tensor]:
        """Log-densities of first latents (N, K), moves (K, K), rows (N, T, K), and parameters."""
        begin, moved = (
            self.first.local_terms(params),
            self.pairs.local_terms(params, first=len(_local(self.first))),
        )
        size, now, then = torch.Size(self.sizes).numel(), self._dims(begin, 0), self._dims(moved, 1)
        densities = [
            self._sum(terms, "observed", step, dims)
            .expand(rows, *self.sizes)
            .reshape(self.num_rows, -1, size)
            for terms, step, dims, rows in (
                (begin, 0, now, self.num_rows),
                (moved, 1, then, self.num_rows * (self.num_steps - 1)),
            )
        ]
        moves = self._moves(moved)[0]  # those of all rows are the same, which was tried
        return {
            "first": (
                self._sum(begin, "latent", 0, now)
                .expand(self.num_rows, *self.sizes)
                .reshape(self.num_rows, size)
            ),
            "moves": moves.expand(*self.sizes, *self.sizes).reshape(size, size),
            "densities": torch.cat(densities, 1),
        }, begin.log_prior

    def moves_of_rows(self, params: Params) -> Tensor:
        """Transition log-probabilities of every row, or of one for all, (rows, ...)."""
        return self._moves(self.pairs.local_terms(params, first=len(_local(self.first))))

    def _moves(self, moved: LocalTerms) -> Tensor:
        return self._sum(moved, "latent", 1, self._dims(moved, 0) + self._dims(moved, 1))

    def _dims(self, terms: LocalTerms, step: int) -> list[int]:
        return [terms.trace.nodes[name]["infer"]["_enumerate_dim"] for name in self.latents[step]]

    def _sum(self, terms: LocalTerms, kind: str, step: int, dims: Sequence[int]) -> Tensor:
        """Sum over sites of one kind at one step, (rows, values of latents ...), narrowed."""
        program = self.first if step == 0 else self.pairs
        sites = _local(program)
        total = torch.zeros(())
        for site in sites[step * len(sites) // 2 :]:
            if site.kind == kind:
                log_prob = narrow_repeated(terms.log_probs[site.name], [self.row_dim])
                total = total + _arranged(
                    log_prob,
                    terms.trace.nodes[site.name],
                    [self.row_dim, *dims],
                    program.max_plate_nesting,
                )
        return total


def find_chain(program: Any) -> Chain | None:
    """Hidden-chain form of a program that passes a trial; None for all others."""
    if (
        program.is_own
        or len(program.args) != 1
        or sum(site.in_chain for site in program.sites) < LEAST_STEPS
    ):
        return None
    num_rows, row_dim = _sequences(program) or (0, 0)
    for layout in layouts(program.args[0], num_rows) if row_dim else ():
        try:
            with torch.no_grad(), quiet():
                if program.latent_prior.sites:
                    raise _Differs
                exact = (
                    program
                    if floating_dtype(program.args) is torch.float64
                    else program.part(map_tensors(_as_double, program.args[0]), 0)
                )
                chain = Chain.build(exact, layout, row_dim)
                _try(exact, chain)
                return chain if exact is program else Chain.build(program, layout, row_dim)
        except Exception:  # noqa: BLE001, S112 (whatever a program does with two steps, or with paths of latents, that it does not expect)
            continue
    logger.info(
        "the steps of the pyro.markov loop are run one by one, which takes time that grows with"
        " their number: a scan does it where all steps but the first are alike, nothing but latents"
        " and data stands in them, the length is read off the data, sequences stand in one plate"
        " (or there is one), and time is an axis of the data"
    )
    return None


def _as_double(x: Tensor) -> Tensor:
    """Convert to double precision, so that rounding does not pass for a difference."""
    return x.double() if x.is_floating_point() else x


def _sequences(program: Any) -> tuple[int | None, int] | None:
    """Number of sequences in the plate of the latents and its dim; None without a chain."""
    local = _local(program)
    latents = [site for site in local if site.kind == "latent"]
    if len(latents) < LEAST_STEPS or program.names("local") or program.names("factor"):
        return None
    if not all(site.in_chain for site in local):
        return None
    plates = latents[0].plates
    if (
        len(plates) > 1
        or any(site.plates != plates or site.num_values is None for site in latents)
        or any(not {*plates} <= {*site.plates} for site in local)
    ):
        return None
    frames = {
        f.name: f
        for site in local
        for f in program.first_trace.nodes[site.name]["cond_indep_stack"]
        if f.vectorized
    }
    if plates:
        return frames[plates[0]].size, frames[plates[0]].dim
    return None, min([0, *(f.dim for f in frames.values())]) - 1


def _try(program: Any, chain: Chain) -> None:
    """Raise where the chain does not reproduce the program."""
    if chain.num_steps < LEAST_STEPS or torch.Size(chain.sizes).numel() > MOST_VALUES:
        raise _Differs
    points = inner_points(chain.first)
    for k in (0, 1):
        point = {name: value[k] for name, value in points.items()}
        factors = chain.factors(point, False)
        if not bool(factors.log_total().isfinite()):
            raise _Differs
        moves = chain.moves_of_rows(point)
        _must_agree(moves, moves[:1])
        if k == 0:
            _try_paths(program, chain, point, factors)
        few = program.part(
            chain.layout.begin(program.args[0], SHORT + (chain.num_rows == SHORT)),
            program.max_plate_nesting,
        )
        _must_agree(
            Chain.build(few, chain.layout, chain.row_dim).factors(point, False).log_rows(),
            few.log_marginal_rows(point),
        )


def _try_paths(program: Any, chain: Chain, point: Params, factors: ChainFactors) -> None:
    """Check the factors of all steps along some paths against those of the pairs."""
    paths = _paths(chain)  # (T, P, N)
    nesting = program.max_plate_nesting
    shape = [1] * nesting
    if chain.layout.has_rows:
        shape[chain.row_dim] = chain.num_rows
    fixed = {}
    for states, names in zip(paths, chain.latents, strict=True):
        for name, index, support in zip(
            names, torch.unravel_index(states, chain.sizes), chain.supports, strict=True
        ):
            fixed[name] = support[index].reshape(-1, *shape, *support.shape[1:])
    terms = program.local_terms(point, fixed)
    if terms.scale != 1.0:
        raise _Differs
    keep = [-1 - nesting, chain.row_dim] if chain.layout.has_rows else [-1 - nesting]
    sums: dict[str, list[Tensor]] = {"latent": [], "observed": []}
    local = _local(program)
    for sites in (
        local[t : t + len(local) // chain.num_steps]
        for t in range(0, len(local), len(local) // chain.num_steps)
    ):
        for kind, by_step in sums.items():
            parts = [
                _arranged(terms.log_probs[s.name], terms.trace.nodes[s.name], keep, nesting + 1)
                for s in sites
                if s.kind == kind
            ]
            by_step.append(
                sum(parts, torch.zeros(())).reshape(*parts[0].shape[:1], -1).expand(paths.shape[1:])
            )
    first, moves, densities = (factors.terms[name][0] for name in ("first", "moves", "densities"))
    _must_agree(torch.stack(sums["observed"]).mT, densities.transpose(0, 1).gather(-1, paths.mT))
    _must_agree(sums["latent"][0].mT, first.gather(-1, paths[0].mT))
    _must_agree(torch.stack(sums["latent"][1:]), moves[paths[:-1], paths[1:]])


def _paths(chain: Chain) -> Tensor:
    """Paths (T, P, N) of latents: random ones, and to and fro between every two values."""
    size, (num_rows, num_steps) = torch.Size(chain.sizes).numel(), (chain.num_rows, chain.num_steps)
    generator = torch.Generator().manual_seed(0)
    random = torch.randint(size, (num_steps, NUM_RANDOM, num_rows), generator=generator)
    pairs = torch.cartesian_prod(torch.arange(size), torch.arange(size)).reshape(-1, 2)
    pairs = pairs[
        torch.randperm(len(pairs), generator=generator)[
            : max(0, MOST_TRIED // (num_rows * num_steps) - NUM_RANDOM)
        ]
    ]
    swinging = pairs[:, torch.arange(num_steps) % 2].mT.unsqueeze(-1).expand(-1, -1, num_rows)
    return torch.cat([random, swinging], 1)


def _local(program: Any) -> list[Any]:
    return [site for site in program.sites if site.kind in ("latent", "observed")]


def _arranged(term: Tensor, node: Any, keep: Sequence[int], nesting: int) -> Tensor:
    """Arrange the dims ``keep`` of a log-density in order, multiplying further plates."""
    depth = max(-min(keep), term.dim())
    term = term.reshape((1,) * (depth - term.dim()) + term.shape)
    others = [dim for dim in range(-depth, 0) if dim not in keep]
    if any(term.shape[dim] > 1 and dim < -nesting for dim in others):
        raise _Differs
    frames = {f.dim: f.size for f in node["cond_indep_stack"] if f.vectorized}
    shape = [
        frames.get(dim, term.shape[dim]) if dim in others else term.shape[dim]
        for dim in range(-depth, 0)
    ]
    ordered = term.expand(shape).permute(*(dim + depth for dim in (*keep, *others)))
    kept, rest = ordered.shape[: len(keep)], ordered.shape[len(keep) :]
    return ordered.reshape(kept) if rest.numel() == 1 else ordered.reshape(*kept, -1).sum(-1)


def _must_agree(value: Tensor, other: Tensor) -> None:
    if not torch.allclose(value, other, rtol=NEAR, atol=NEAR):
        raise _Differs
