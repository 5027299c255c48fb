"""What a fit is: estimates, how they were reached, and what can be asked of them."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inference.base.checkpoint import read_tensors, write_tensors
from inference.base.structure import is_large
from inference.engines.gibbs_estimates import log_likelihood_rows, posterior_means
from inference.programs.program import Params, Program, simulate
from inference.structures.registry import structure_of

__all__ = ["Fit", "Restarts", "Trace", "as_tensors"]

FORMAT = 2  # 1 named the modules of its records, which have moved since
PACKAGES = ("ppl_models", "inference")  # whose public records a file may name
FORMAT_1 = {
    f"{module}:{name}"
    for module, names in {
        "inference.alternating": ("AlternatingMinimization", "GradientAlternation"),
        "inference.autoguides": ("FullRank", "LowRank", "MeanField"),
        "inference.bootstrap": ("Bootstrap",),
        "inference.decoders": ("BackwardElimination", "HardThresholding", "Pursuit", "Shrinkage"),
        "inference.em": ("EM",),
        "inference.factorization": ("Factorize",),
        "inference.grow_and_prune": ("GrowAndPrune",),
        "inference.laplace": ("Laplace",),
        "inference.nuts": ("NUTS",),
        "inference.result": ("Restarts", "Trace"),
        "inference.saem": ("SAEM",),
        "inference.score_svi": ("ScoreFunctionSVI",),
        "inference.svi": ("SVI",),
        "ppl_models.bottoms": ("Additive", "ExpDINA", "ExpGDM"),
        "ppl_models.components": ("MultivariateNormal",),
        "ppl_models.continuous_options": ("ContinuousOptionsHMM",),
        "ppl_models.deep_discrete_encoder": ("DeepDiscreteEncoder",),
        "ppl_models.deep_noisy_or": ("DeepNoisyOr",),
        "ppl_models.factor_analysis": ("FactorAnalysis",),
        "ppl_models.matrix_factorization": ("GaussianFactorization", "NegativeBinomialFactorization", "PoissonFactorization"),
        "ppl_models.mixture": ("Mixture",),
        "ppl_models.noisy_or": ("NoisyOr",),
        "ppl_models.options_hmm": ("OptionsHMM",),
        "ppl_models.penalties": ("SCAD", "Ridge", "TruncatedLasso"),
        "ppl_models.policies": ("Network", "SoftmaxLinear"),
        "ppl_models.responses": ("Bernoulli", "Blocks", "LogNormal", "Normal", "Poisson"),
        "ppl_models.sparse_coding": ("SparseCoding",),
        "ppl_models.usage_factorization": ("UsageFactorization",),
    }.items()
    for name in names
}  # all that files of format 1 may hold; every name is public today
CHUNK_ELEMENTS = 2**22


def as_tensors(data: Any) -> Any:
    """Arrays and data frames, alone or in a dict, as tensors; for programs that do not check their data themselves."""
    if isinstance(data, dict):
        return {name: as_tensors(value) for name, value in data.items()}
    if isinstance(data, Tensor) or not hasattr(data, "__array__"):
        return data
    return torch.from_numpy(np.array(data.to_numpy() if hasattr(data, "to_numpy") else data))  # frames lend read-only arrays


def map_tensors(change: Callable[[Tensor], Tensor], data: Any) -> Any:
    """``change`` applied to a tensor, or to every tensor of a dict."""
    return {name: change(value) for name, value in data.items()} if isinstance(data, dict) else change(data)


@dataclass(frozen=True, eq=False)
class Trace:
    """The course of the best restart.

    Args:
        name: what ``objective`` is.
        objective: (iterations,), at the parameters each iteration started from.
        log_likelihood: (iterations,), latents summed out.
    """

    name: str
    objective: Tensor
    log_likelihood: Tensor


@dataclass(frozen=True, eq=False)
class Restarts:
    """Every restart of a fit, R of them.

    Args:
        objective, log_likelihood: (R,); converged: (R,) bool; num_iterations: (R,).
        params: (R, ...), by site name.
        best: index of the reported one.
    """

    objective: Tensor
    log_likelihood: Tensor
    converged: Tensor
    num_iterations: Tensor
    params: Params
    best: int


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted model.

    Args:
        model: the program; method: the engine's settings.
        params: the estimate, by site name.
        log_likelihood: at the estimate, latents summed out.
        objective: what was maximised, at the estimate; objective_name: what it is.
        trace: its course; restarts: all starts.
        converged, num_iterations: of the reported restart; seconds: of the whole call.
        seed, num_rows, item_names: of the call.
        warnings: texts of the warnings given.
        draws: posterior draws (chains, draws, ...) by site name, None for a point estimate.
        elbo: a lower bound of ``log_likelihood``, from engines that have one.
        local: point estimates of continuous latents of the rows fitted (activities), (N, ...) by site, never mixed with
            ``params``; None for models without. The log-likelihood is then conditional on them.
        sample_stats: what the engine says of each draw (divergences, energy, ...), (chains, draws), by name.
        num_observations: the sample size of an information criterion: the steps of all sequences where rows are sequences.
    """

    model: Callable[..., Any]
    method: Any
    params: Params
    log_likelihood: float
    objective: float
    objective_name: str
    trace: Trace
    restarts: Restarts
    converged: bool
    num_iterations: int
    seconds: float
    seed: int
    num_rows: int
    item_names: tuple[str, ...]
    warnings: tuple[str, ...]
    draws: Params | None
    elbo: float | None = None
    local: Params | None = None
    sample_stats: Params | None = None
    num_observations: int | None = None

    # ---------------------------------------------------------------- numbers

    @property
    def num_parameters(self) -> int:
        """Free parameters: loadings that are exactly zero are not counted."""
        return structure_of(self.model).num_free(self.params | (self.local or {}))

    @property
    def bic(self) -> float:
        """-2 log-likelihood + (number of free parameters) log N, N rows (or steps of sequences); smaller is better."""
        return -2 * self.log_likelihood + self.num_parameters * math.log(self.num_observations or self.num_rows)

    # ---------------------------------------------------------------- rows

    def chunks(self, data: Any) -> Iterator[Program]:
        """The program on consecutive chunks of rows, or on all of ``data`` where it is no table."""
        check = getattr(self.model, "check_data", None)
        if check is None:
            yield Program(self.model, as_tensors(data))
            return
        checked, names = check(data, for_fit=False)
        if names != self.item_names and sorted(names) == sorted(self.item_names):
            raise ValueError(f"data: columns in the order of the fit, {self.item_names}, were expected, got {names}")
        like = next(iter(self.params.values()))  # the estimate's dtype and device
        checked = map_tensors(lambda x: x.to(like if x.is_floating_point() else like.device), checked)
        first = checked if isinstance(checked, Tensor) else next(iter(checked.values()))
        program = Program(self.model, map_tensors(lambda x: x[:1], checked))
        values = 1 if is_large(program) else max(site.num_values or 1 for site in program.sites)
        rows = max(1, CHUNK_ELEMENTS // max(first[:1].numel(), values))
        for start in range(0, len(first), rows):
            chunk = slice(start, start + rows)
            yield program.with_data(map_tensors(operator.itemgetter(chunk), checked))

    def _by_row(self, data: Any, ask: Callable[[Program, Params], dict[str, Tensor]]) -> dict[str, Tensor]:
        structure = structure_of(self.model)
        parts = []
        for program in self.chunks(data):
            local = structure.solve_local(self.params, program.args[0]) if structure.local_sites else {}
            parts.append(ask(program, self.params | local))
        return parts[0] if len(parts) == 1 else {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def posterior_latents(self, data: Any) -> dict[str, Tensor]:
        """P(latent = 1 | row), (N, K) by latent site; for a categorical latent the probability of each value.

        Given the activities, where the model has such local sites: those of the rows in ``data`` are solved for.
        Where the configurations are too many to sum over, the mean of 200 Gibbs sweeps.

        Raises:
            ValueError: if ``data`` does not fit the model.
        """
        return self._by_row(data, self._latent_means)

    def sums_out(self, program: Program) -> bool:
        """Whether the latents can be summed over: few values, and no continuous latents left to integrate."""
        structure = structure_of(self.model)
        settled = {*structure.local_sites, *structure.integrated_sites}
        return structure.sums_out(program) and set(program.names("local")) <= settled

    def _latent_means(self, program: Program, params: Params) -> dict[str, Tensor]:
        if self.sums_out(program):
            return structure_of(self.model).latent_means(program, params)
        means, _ = self._sweeps(program, params)
        return {name: value[0].mT for name, value in means.items()}

    def _sweeps(self, program: Program, params: Params) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        generator = torch.Generator().manual_seed(self.seed)
        gibbs = structure_of(self.model).gibbs(program)
        return posterior_means(gibbs, {name: value.unsqueeze(0) for name, value in params.items()}, generator)

    def decode_latents(self, data: Any) -> dict[str, Tensor]:
        """The most probable value of each latent site, jointly over a layer's entries, (N, K) by latent site.

        Given the activities, where the model has such local sites: those of the rows in ``data`` are solved for.
        Where the configurations are too many to sum over, entry by entry.
        """

        def modes(program: Program, params: Params) -> dict[str, Tensor]:
            if self.sums_out(program):
                return structure_of(self.model).latent_modes(program, params)
            means = self._latent_means(program, params)
            return {name: (means[name] > 0.5).to(means[name]) for name in program.names("latent")}

        return self._by_row(data, modes)

    def log_likelihood_rows(self, data: Any) -> Tensor:
        """Log-likelihood of each row, latents summed out, (N,); () for a program without a plate over rows.

        Given the activities, where the model has such local sites: those of the rows in ``data`` are solved for.
        Where the configurations are too many to sum over, a stochastic lower bound of it:
        :func:`inference.engines.gibbs_estimates.log_likelihood_rows`.
        """

        def rows(program: Program, params: Params) -> dict[str, Tensor]:
            structure = structure_of(self.model)
            if structure.local_sites:
                return {"": structure.conditional_rows(params, program.args[0])}
            if self.sums_out(program):
                return {"": structure.marginal_rows(program, params)}
            _, latents = self._sweeps(program, params)
            generator = torch.Generator().manual_seed(self.seed)
            one = {name: value.unsqueeze(0) for name, value in params.items()}
            return {"": log_likelihood_rows(structure_of(self.model).gibbs(program), one, latents, generator)[0]}

        return self._by_row(data, rows)[""]

    def reconstruct(self, data: Any) -> Tensor:
        """E[items | latents] averaged over the posterior of the latents, (N, J).

        Raises:
            ValueError: if the model's rows are not a finite mixture over one latent site.
        """
        out = []
        for program in self.chunks(data):
            mixture = program.as_mixture(self.params)
            if mixture is None:
                raise ValueError("reconstruct: the model's rows are not a finite mixture over one latent site")
            weights = program.latent_marginals(self.params)[mixture.latent]  # (n, C)
            means = mixture.response.mean.reshape(weights.shape[1], -1)
            out.append((weights @ means).detach())
        return torch.cat(out)

    def simulate(self, num_rows: int, seed: int = 0) -> dict[str, Tensor]:
        """Rows drawn from the fitted program: latents and items, (num_rows, ...) by site.

        Activities and the like are those of the fit where the number of rows is the same, else resampled from them.
        """
        if isinstance(num_rows, bool) or not isinstance(num_rows, int) or num_rows < 1:
            raise ValueError(f"simulate: num_rows must be a positive integer, got {num_rows!r}")
        try:
            inspect.signature(self.model).bind(None, num_rows)
        except TypeError:
            raise ValueError(
                "simulate: the program must take (data, num_rows), and draw that many rows where data is None"
            ) from None
        local = {}
        if self.local:
            own = len(next(iter(self.local.values())))
            picked = torch.randint(own, (num_rows,), generator=torch.Generator().manual_seed(seed))
            picked = torch.arange(own) if num_rows == own else picked
            local = {name: value[picked] for name, value in self.local.items()}
        return simulate(self.model, self.params | local, seed, None, num_rows)

    def to_arviz(
        self,
        data: Any = None,
        num_predictive: int | None = None,
        seed: int = 0,
        names: Any = None,
        num_prior: int = 0,
    ) -> Any:
        """ArviZ object with named dims; see :func:`inference.fitting.export.to_arviz`."""
        from inference.fitting.export import to_arviz

        return to_arviz(self, data, num_predictive, seed, names, num_prior)

    # ---------------------------------------------------------------- files

    def save(self, path: str | Path) -> None:
        """Write the fit as a folder with ``fit.safetensors``, which holds tensors and a JSON record and no code.

        Raises:
            ValueError: if ``path`` is a file, or the model is not a dataclass of plain fields.
        """
        folder = Path(path)
        if folder.exists() and not folder.is_dir():
            raise ValueError(f"save: {folder} is a file; name a folder")
        tensors: dict[str, Tensor] = {}
        record: dict[str, Any] = {"format": FORMAT}
        for field in dataclasses.fields(self):
            record[field.name] = _pack(getattr(self, field.name), field.name, tensors)
        write_tensors(folder / "fit.safetensors", tensors, record)
        (folder / "fit.json").write_text(json.dumps(record, indent=1), encoding="utf-8")  # for people to read

    @classmethod
    def load(cls, path: str | Path, model: Callable[..., Any] | None = None) -> Fit:
        """Read a saved fit. Only this library's own record types are rebuilt; nothing in the file is executed.

        Args:
            path: the folder that :meth:`save` wrote.
            model: the program, where it is not one of this library's.

        Raises:
            ValueError: if the folder holds no such fit, or its model is unknown and not given.
        """
        tensors, record = read_tensors(Path(path) / "fit.safetensors")
        written = record.get("format")
        if written not in (1, FORMAT):
            newer = isinstance(written, int) and written > FORMAT
            remedy = "; a newer version of ppl-models wrote this fit: update the library to read it" if newer else ""
            raise ValueError(f"load: format {FORMAT} was expected, got {written!r}{remedy}")
        fields: dict[str, Any] = {}
        try:
            for field in dataclasses.fields(cls):
                if field.name == "model" and model is not None:
                    fields["model"] = model
                elif field.name in record or field.default is dataclasses.MISSING:
                    fields[field.name] = _unpack(record[field.name], tensors, written)
        except (AttributeError, ImportError, KeyError, TypeError) as error:
            raise ValueError(f"load: {path} is damaged, or was written by another version ({error!r})") from error
        if fields["model"] is None:
            raise ValueError("load: the model of this fit is not of this library; pass it as load(path, model=...)")
        return cls(**fields)


@dataclasses.dataclass(frozen=True)
class SavedFunction:
    """Stands in a loaded fit for a function of the user's, such as a guide, of which a file without code keeps the name.

    Args:
        name: of the function.
    """

    name: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise ValueError(f"the fit was saved, and its file keeps no code: {self.name} is needed again to fit")


def _pack(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """A value as JSON; tensors go aside under their path."""
    if isinstance(value, Tensor):
        tensors[name] = value
        return {"tensor": name}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, dict):
        return {"dict": {key: _pack(part, f"{name}.{key}", tensors) for key, part in value.items()}}
    if isinstance(value, tuple | list):
        return {"tuple": [_pack(part, f"{name}.{i}", tensors) for i, part in enumerate(value)]}
    kind = type(value)
    if isinstance(value, SavedFunction):
        return {"function": value.name}
    public = public_name(kind)
    if public is not None:
        fields = {f.name: _pack(getattr(value, f.name), f"{name}.{f.name}", tensors) for f in dataclasses.fields(value)}
        return {"record": public, "fields": fields}
    if name == "model":
        return None  # a user's program: given again at load
    if callable(value) and name.startswith("method."):
        return _pack(SavedFunction(getattr(value, "__qualname__", kind.__qualname__)), name, tensors)
    raise ValueError(f"save: {name} holds a {kind.__name__}, which has no place in a file without code")


def public_name(kind: type) -> str | None:
    """``package:Name`` of a record that a package offers under its public names, such as ``inference:EM``, else None."""
    for package in PACKAGES:
        if dataclasses.is_dataclass(kind) and _public(package, kind.__name__) is kind:
            return f"{package}:{kind.__name__}"
    return None


def _public(package: str, name: str) -> Any:
    module = importlib.import_module(package)
    return getattr(module, name) if name in module.__all__ else None


def _record_type(record: str, written: int) -> type:
    """The public record type that a file names."""
    package, _, name = record.partition(":")
    if written == 1 and record in FORMAT_1:
        package = package.partition(".")[0]
    if package.partition(".")[0] not in PACKAGES or not name.isidentifier():
        raise ValueError(f"load: record type {record!r} is not of this library")
    kind = _public(package, name) if package in PACKAGES else None
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise ValueError(
            f"load: unknown record type {record!r}: this version of the library has no such public name; the fit may come from "
            "a newer one, or the file was changed"
        )
    return kind


def _unpack(value: Any, tensors: dict[str, Tensor], written: int) -> Any:
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return tensors[value["tensor"]]
    if "float" in value:
        return float(value["float"])
    if "function" in value:
        return SavedFunction(str(value["function"]))
    if "dict" in value:
        return {key: _unpack(part, tensors, written) for key, part in value["dict"].items()}
    if "tuple" in value:
        return tuple(_unpack(part, tensors, written) for part in value["tuple"])
    if value["record"] == "inference.fitting.result:SavedFunction" and written == 1:
        return SavedFunction(str(value["fields"]["name"]))
    kind = _record_type(value["record"], written)
    name = kind.__name__
    new: Any = object.__new__(kind)  # not the constructor: the values were checked when the fit was made
    names = {field.name: field for field in dataclasses.fields(kind)}
    for key, field in names.items():
        if key not in value["fields"] and field.default is dataclasses.MISSING:
            raise ValueError(f"load: {name} lacks the field {key!r}")
    for key, part in value["fields"].items():
        if key not in names:
            raise ValueError(f"load: {name} has no field {key!r}")
        object.__setattr__(new, key, _unpack(part, tensors, written))
    return new
