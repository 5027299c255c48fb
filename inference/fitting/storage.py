"""Storage of a fit: tensors and a JSON record of public class names; nothing executes."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import math
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from inference.base.checkpoint import read_tensors, usable_path, write_tensors, write_whole
from inference.fitting.record import FitRecord
from inference.fitting.validate_saved import check_loaded
from inference.programs.arguments import Call
from inference.programs.quadrature import Quadrature, integrated, quadrature_of

FORMAT = 3  # 1 named the modules of its records, which have moved since; 1 and 2 had no checksum
UNSIGNED = (1, 2)
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
        "ppl_models.matrix_factorization": (
            "GaussianFactorization",
            "NegativeBinomialFactorization",
            "PoissonFactorization",
        ),
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


def save(fit: FitRecord, path: str | Path) -> None:
    """Save the fit as a folder with ``fit.safetensors``: tensors, a JSON record, no code.

    Raises:
        ValueError: if ``path`` is a file, or the model is not a dataclass of plain fields.
    """
    folder = usable_path("save", path, is_folder=True)
    tensors: dict[str, Tensor] = {}
    record: dict[str, Any] = {"format": FORMAT}
    for field in dataclasses.fields(fit):
        value = getattr(fit, field.name)
        record[field.name] = (
            None
            if field.name == "model" and _holds_code(value)
            else pack(value, field.name, tensors)
        )
    if isinstance(fit.model, Call):
        record["settings"] = _settings_record(fit.model, tensors)
    if (rule := quadrature_of(fit.model)) is not None:
        fields = {field.name: getattr(rule, field.name) for field in dataclasses.fields(rule)}
        record["quadrature"] = pack(fields, "quadrature", tensors)
    write_tensors(folder / "fit.safetensors", tensors, record)
    write_whole(folder / "fit.json", json.dumps(record, indent=1))  # for people to read


def read_fields(path: str | Path, model: Callable[..., Any] | None = None) -> dict[str, Any]:
    """Read the fields of a saved fit; see :meth:`inference.Fit.load`."""
    tensors, record = read_tensors(Path(path) / "fit.safetensors", unsigned=UNSIGNED)
    written = record.get("format")
    if isinstance(written, bool) or written not in (*UNSIGNED, FORMAT):
        newer = isinstance(written, int) and written > FORMAT
        remedy = (
            "; a newer version of ppl-models wrote this fit: update the library to read it"
            if newer
            else ""
        )
        raise ValueError(f"load: format {FORMAT} was expected, got {written!r}{remedy}")
    fields: dict[str, Any] = {}
    try:
        for field in dataclasses.fields(FitRecord):
            if field.name == "model" and model is not None:
                settings = unpack(record.get("settings"), tensors, written)
                fields["model"] = model if settings is None else _called(model, settings)
                if "quadrature" in record:
                    rule = Quadrature(**unpack(record["quadrature"], tensors, written))
                    fields["model"] = integrated(fields["model"], rule)
            elif field.name in record or field.default is dataclasses.MISSING:
                fields[field.name] = unpack(record[field.name], tensors, written)
    except Exception as error:
        if str(error).startswith("load: "):
            raise
        raise ValueError(
            f"load: {path} is damaged, or was written by another version ({error!r})"
        ) from error
    if fields["model"] is None:
        raise ValueError(
            "load: the model of this fit is not of this library, or holds code of yours; pass it as"
            " load(path, model=...)"
        )
    try:
        check_loaded(fields)
    except (ValueError, RuntimeError) as error:
        raise ValueError(
            f"load: {path} holds no fit: {str(error).strip().splitlines()[0]}"
        ) from error
    return fields


def _settings_record(call: Call, tensors: dict[str, Tensor]) -> Any:
    """Settings of a user's program as JSON; of those that hold code the names alone."""
    packed: dict[str, Any] = {}
    for name, value in call.settings.items():
        try:
            packed[name] = pack(value, f"settings.{name}", tensors)
        except ValueError:
            packed[name] = {"function": name}
    return {"dict": packed}


def _called(model: Callable[..., Any], settings: dict[str, Any]) -> Call:
    """The user's program with the settings of the fit.

    Raises:
        ValueError: for a setting that holds code, which the program does not come with.
    """
    given = model.keywords if isinstance(model, functools.partial) else {}
    code = [name for name, value in settings.items() if isinstance(value, SavedFunction)]
    if missing := [name for name in code if name not in given]:
        raise ValueError(
            f"load: the settings {', '.join(missing)} of the program hold code of yours, which no"
            " file keeps; give them as load(path, model=functools.partial(program,"
            f" {missing[0]}=...))"
        )
    return Call(model, {name: value for name, value in settings.items() if name not in given})


@dataclasses.dataclass(frozen=True)
class SavedFunction:
    """Placeholder of a user's function in a loaded fit: a file without code keeps its name.

    Args:
        name: of the function.
    """

    name: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise ValueError(
            f"the fit was saved, and its file keeps no code: {self.name} is needed again to fit"
        )


def _holds_code(model: Any) -> bool:
    """Tell whether a part of a library model is the user's own code, given again at load."""
    parts = (
        [getattr(model, field.name) for field in dataclasses.fields(model)]
        if dataclasses.is_dataclass(model)
        else []
    )
    while parts:
        part = parts.pop()
        if isinstance(part, nn.Module | types.FunctionType):
            return True
        if isinstance(part, tuple | list):
            parts.extend(part)
        elif dataclasses.is_dataclass(part) and not isinstance(part, type):
            parts.extend(getattr(part, field.name) for field in dataclasses.fields(part))
    return False


def pack(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Convert a value to JSON; tensors go into a dict under their path.

    Raises:
        ValueError: for what would need code, naming its place.
    """
    if isinstance(value, Tensor):
        while name in tensors:  # keys with points in them may make one path of two
            name += "'"
        tensors[name] = value
        return {"tensor": name}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, dict):
        return {"dict": {key: pack(part, f"{name}.{key}", tensors) for key, part in value.items()}}
    if isinstance(value, tuple | list):
        return {"tuple": [pack(part, f"{name}.{i}", tensors) for i, part in enumerate(value)]}
    kind = type(value)
    if isinstance(value, SavedFunction):
        return {"function": value.name}
    public = public_name(kind)
    if public is not None:
        fields = {
            f.name: pack(getattr(value, f.name), f"{name}.{f.name}", tensors)
            for f in dataclasses.fields(value)
        }
        return {"record": public, "fields": fields}
    if name == "model":
        return None  # a user's program: given again at load
    if callable(value) and name.startswith("method."):
        return pack(SavedFunction(getattr(value, "__qualname__", kind.__qualname__)), name, tensors)
    raise ValueError(
        f"save: {name} holds a {kind.__name__}, which has no place in a file without code"
    )


def public_name(kind: type) -> str | None:
    """Public name of a record, as ``inference:EM``, else None."""
    for package in PACKAGES:
        if dataclasses.is_dataclass(kind) and _public(package, kind.__name__) is kind:
            return f"{package}:{kind.__name__}"
    return None


def _public(package: str, name: str) -> Any:
    module = importlib.import_module(package)
    return getattr(module, name) if name in dir(module) else None  # many come on first use


def _record_type(record: str, written: int) -> type:
    """Public record type named in a file."""
    package, _, name = record.partition(":")
    if written == 1 and record in FORMAT_1:
        package = package.partition(".")[0]
    if package.partition(".")[0] not in PACKAGES or not name.isidentifier():
        raise ValueError(f"load: record type {record!r} is not of this library")
    kind = _public(package, name) if package in PACKAGES else None
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise ValueError(
            f"load: unknown record type {record!r}: this version of the library has no such public"
            " name; the fit may come from a newer one, or the file was changed"
        )
    return kind


def unpack(value: Any, tensors: dict[str, Tensor], written: int = FORMAT) -> Any:
    """Invert :func:`pack`; lists come back as tuples.

    Raises:
        ValueError: for records that this version does not know.
    """
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return tensors[value["tensor"]]
    if "float" in value:
        return float(value["float"])
    if "function" in value:
        return SavedFunction(str(value["function"]))
    if "dict" in value:
        return {key: unpack(part, tensors, written) for key, part in value["dict"].items()}
    if "tuple" in value:
        return tuple(unpack(part, tensors, written) for part in value["tuple"])
    if value["record"] == "inference.result:SavedFunction" and written == 1:
        return SavedFunction(str(value["fields"]["name"]))
    if not isinstance(value.get("fields"), dict) or not isinstance(value["record"], str):
        raise TypeError(f"a record with its fields was expected, got {value!r}"[:200])
    kind = _record_type(value["record"], written)
    name = kind.__name__
    new: Any = object.__new__(
        kind
    )  # not the constructor: the values were checked when the fit was made
    names = {field.name: field for field in dataclasses.fields(kind)}
    old = getattr(kind, "old_fields", {})
    given = {old.get(key, key) for key in value["fields"]}
    for key, field in names.items():
        if key in given or field.default is not dataclasses.MISSING:
            continue
        if field.default_factory is dataclasses.MISSING:
            raise ValueError(f"load: {name} lacks the field {key!r}")
        object.__setattr__(new, key, field.default_factory())
    for key_then, part in value["fields"].items():
        key = old.get(key_then, key_then)
        if key not in names:
            raise ValueError(f"load: {name} has no field {key!r}")
        object.__setattr__(new, key, unpack(part, tensors, written))
    if hasattr(new, "__post_init__"):
        try:
            new.__post_init__()  # the same checks as when it was made
        except Exception as error:
            raise ValueError(f"load: {name} has settings that it cannot have: {error}") from error
    return new
