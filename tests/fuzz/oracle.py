"""What a case may end in: an answer without silent NaN, or a refusal of our own in words."""

from __future__ import annotations

import contextlib
import math
import resource
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from inference import Fit
from inference.programs.program import Program

SECONDS = 30  # of one case
MEMORY = 6 * 2**30  # bytes beyond what the process holds
OWN = ("/inference/", "/ppl_models/")

REFUSED, ANSWERED, UNCAUGHT, SILENT, SLOW = (
    "refused",
    "answered",
    "uncaught",
    "silent NaN",
    "too slow",
)


class SilentNaN(Exception):
    """A number that should be one is none, or lies where it cannot."""


class TooSlow(BaseException):
    """A case took longer than it may."""


@dataclass(frozen=True)
class Verdict:
    """How a case ended: its kind, one of the five words, and what there is to say."""

    kind: str
    word: str
    text: str = ""

    @property
    def is_defect(self) -> bool:
        return self.word in (UNCAUGHT, SILENT, SLOW)


def judge(kind: str, case: Callable[[], bool]) -> Verdict:
    """Run a case; it returns whether it had an answer."""
    with warnings.catch_warnings(), guarded():
        warnings.simplefilter("ignore")
        try:
            return Verdict(kind, ANSWERED if case() else REFUSED)
        except SilentNaN as found:
            return Verdict(kind, SILENT, str(found))
        except TooSlow as slow:
            return Verdict(
                kind,
                SLOW,
                f"longer than {SECONDS}"
                f" seconds\n{''.join(traceback.format_tb(slow.__traceback__)[-8:])}",
            )
        except OSError as error:
            return Verdict(kind, REFUSED, str(error)[:300])
        except ValueError as error:
            if is_own(error):
                return Verdict(kind, REFUSED, str(error)[:300])
            return Verdict(
                kind, UNCAUGHT, "not our own " + "".join(traceback.format_exception(error))[-3000:]
            )
        except Exception as error:  # noqa: BLE001  (this is what is looked for)
            return Verdict(kind, UNCAUGHT, "".join(traceback.format_exception(error))[-3000:])


def is_own(error: BaseException) -> bool:
    """Whether an error was raised by a line of this library, with words of its own."""
    frames = traceback.extract_tb(error.__traceback__)
    return (
        bool(frames)
        and any(part in frames[-1].filename for part in OWN)
        and bool(str(error).strip())
    )


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Limits of time and memory for one case, and the process left as it was."""

    def stop(*_: Any) -> None:
        raise TooSlow

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:  # noqa: PTH123
        held = int(file.read().split()[0]) * resource.getpagesize()
    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of work, however busy the machine is
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, hard))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


# ---------------------------------------------------------------- what must hold


def require(condition: bool, text: str) -> None:
    if not condition:
        raise SilentNaN(text)


def finite(name: str, value: Any) -> None:
    if isinstance(value, Tensor):
        value = value.detach()
        require(
            not value.is_floating_point() or bool(torch.isfinite(value).all()),
            f"{name} is not finite: {_shown(value)}",
        )
    elif isinstance(value, float):
        require(math.isfinite(value), f"{name} = {value}")


def _shown(value: Tensor) -> str:
    return str(value.ravel()[:8].tolist())


def sound(result: Fit, program: Program | None) -> None:
    """Everything that a fit promises about its numbers."""
    for name, value in {**result.params, **(result.local or {})}.items():
        finite(f"params[{name!r}]", value)
    if program is not None:
        own = Program(
            result.model, *program.args
        )  # whose priors are in the units that the fit measured
        for site in own.sites:
            if site.kind == "parameter" and site.name in result.params:
                inside = site.support.check(result.params[site.name])
                require(
                    bool(inside.all()),
                    f"params[{site.name!r}] outside {site.support}:"
                    f" {_shown(result.params[site.name])}",
                )
    finite("objective", result.objective)
    if math.isnan(result.log_likelihood):
        drawn = result.objective_name.startswith(
            "log-posterior of parameters and"
        )  # with continuous latents of the rows
        require(
            drawn or (result.elbo is not None and math.isfinite(result.elbo)),
            f"log_likelihood is NaN, and elbo is {result.elbo}",
        )
    else:
        finite("log_likelihood", result.log_likelihood)
        finite("bic", result.bic)
    for name, value in (result.draws or {}).items():
        finite(f"draws[{name!r}]", value)
    best = result.restarts.best
    require(0 <= best < len(result.restarts.objective), f"best = {best}")
    finite("restarts.objective[best]", result.restarts.objective[best])
    require(result.num_iterations >= 0 and result.seconds >= 0, "negative counts")


def probabilities(name: str, value: Tensor, sum_to_one: bool) -> None:
    finite(name, value)
    require(
        bool(((value >= -1e-6) & (value <= 1 + 1e-6)).all()),
        f"{name} outside [0, 1]: {_shown(value)}",
    )
    if sum_to_one:
        total = value.sum(-1)
        is_after_the_end = (value == 0).all(-1)  # of a shorter sequence
        require(
            bool((((total - 1).abs() < 1e-4) | is_after_the_end).all()),
            f"{name} does not sum to one: {_shown(total)}",
        )


def same(one: Fit, other: Fit) -> str | None:
    """Where two fits differ, bit for bit; None where they do not."""
    for name in (
        "log_likelihood",
        "objective",
        "num_iterations",
        "converged",
        "seed",
        "num_rows",
        "item_names",
        "objective_name",
        "elbo",
    ):
        a, b = getattr(one, name), getattr(other, name)
        if a != b and not (
            isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b)
        ):
            return f"{name}: {a!r} and {b!r}"
    pairs = [
        (one.trace.__dict__, other.trace.__dict__),
        (one.restarts.__dict__, other.restarts.__dict__),
    ]
    for name in ("params", "draws", "local", "sample_stats"):
        pairs.append((getattr(one, name) or {}, getattr(other, name) or {}))
    pairs.append((one.restarts.params, other.restarts.params))
    for first, second in pairs:
        if first.keys() != second.keys():
            return f"names {sorted(first)} and {sorted(second)}"
        for name, value in first.items():
            if isinstance(value, Tensor) and not identical(value, second[name]):
                return f"{name}: {_shown(value.double())} and {_shown(second[name].double())}"
    return None


def identical(one: Tensor, other: Tensor) -> bool:
    """Equal bits, NaN where the other has NaN."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(one, other) or (
        one.is_floating_point()
        and bool(
            torch.equal(one.isnan(), other.isnan())
            and torch.equal(one.nan_to_num(), other.nan_to_num())
        )
    )
