"""Questions that are asked of a fit, with odd data and settings."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fuzz import oracle
from fuzz.draw import Draw

from inference import Fit


def rows(result: Fit, data: Any, draw: Draw) -> None:
    """One or two questions that every fit answers, of the rows it was fitted to."""
    what = draw.integer(0, 4)
    if hasattr(data, "__next__"):
        return
    if what == 0:
        latents(result, data)
    elif what == 1:
        row = result.log_likelihood_rows(data)
        oracle.finite("log_likelihood_rows", row)
    elif what == 2:
        for name, value in result.decode_latents(data).items():
            oracle.finite(f"decode_latents[{name!r}]", value)
    elif what == 3:
        with tempfile.TemporaryDirectory() as folder:
            result.save(Path(folder) / "fit")
            difference = oracle.same(result, Fit.load(Path(folder) / "fit"))
            oracle.require(difference is None, f"saved and loaded differ: {difference}")


def latents(result: Fit, data: Any) -> None:
    found = result.posterior_latents(data)
    for name, value in found.items():
        if name in (
            *result.structure.local_sites,
            *result.structure.integrated_sites,
            "activities",
            "codes",
        ):
            oracle.finite(name, value)
        else:
            oracle.probabilities(name, value, name in ("assignments", "options"))


def ask(draw: Draw, result: Fit, data: Any) -> bool:
    """A question out of all, its settings sometimes odd."""
    what = draw.choice(sorted(QUESTIONS))
    QUESTIONS[what](draw, result, data)
    return True


def _setting(draw: Draw, plain: Any) -> Any:
    return draw.hostile() if draw.chance(0.3) else plain


def _simulate(draw: Draw, result: Fit, data: Any) -> None:
    rows = _setting(draw, 4)
    if isinstance(rows, int) and rows > 1000:
        rows = 5
    for name, value in result.simulate(rows, _setting(draw, 1)).items():
        oracle.finite(f"simulate[{name!r}]", value)


def _estimates(draw: Draw, result: Fit, data: Any) -> None:
    from inference.estimates import estimates_of

    estimates_of(result, data, level=_setting(draw, 0.9))


def _errors(draw: Draw, result: Fit, data: Any) -> None:
    from inference.uncertainty import standard_errors

    found = standard_errors(result, data, kind=draw.choice(("hessian", "scores", "sandwich", "x")))
    for name, value in found.standard_errors.items():
        oracle.require(not bool((value < 0).any()), f"a negative standard error of {name}")


def _predictive(draw: Draw, result: Fit, data: Any) -> None:
    from inference.predictive import predictive_checks

    predictive_checks(result, data, num_simulations=_few(_setting(draw, 2)))


def _few(value: Any) -> Any:
    return 3 if isinstance(value, int) and value > 50 else value


def _loo(draw: Draw, result: Fit, data: Any) -> None:
    from inference.loo import cross_validate, loo

    if draw.chance(0.5):
        loo(result, data)
    else:
        found = cross_validate(result, data, num_folds=_few(_setting(draw, 2)))
        oracle.finite("cross_validate", torch.as_tensor(np.asarray(found.elpd)))


def _arviz(draw: Draw, result: Fit, data: Any) -> None:
    result.to_arviz(
        data if draw.chance(0.7) else None,
        num_predictive=_few(_setting(draw, None)),
        seed=_setting(draw, 0),
    )


def _align(draw: Draw, result: Fit, data: Any) -> None:
    from inference.alignment import align

    align(result, _setting(draw, result.params))


def _information(draw: Draw, result: Fit, data: Any) -> None:
    from inference.uncertainty import check_information

    check_information(result, data, num_rows=_few(_setting(draw, 20)))


def _identifiability(draw: Draw, result: Fit, data: Any) -> None:
    from inference.identifiability.of_fit import identifiability_of

    identifiability_of(result, data)


def _bootstrap(draw: Draw, result: Fit, data: Any) -> None:
    from inference.bootstrap import bootstrap

    found = bootstrap(result, data, num_replicates=_few(_setting(draw, 2)))
    for name, value in (found.draws or {}).items():
        oracle.finite(f"bootstrap {name}", value)


def _rows_again(draw: Draw, result: Fit, data: Any) -> None:
    rows(result, data, draw)


def _likelihood(draw: Draw, result: Fit, data: Any) -> None:
    oracle.finite("log_likelihood_rows", result.log_likelihood_rows(data))


def _latents(draw: Draw, result: Fit, data: Any) -> None:
    latents(result, data)


def _save(draw: Draw, result: Fit, data: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = draw.choice(
            [
                Path(folder) / "a" / "b",
                Path(folder) / "é ü",
                str(Path(folder) / "x"),
                Path(folder) / "a\x00b",
                Path(folder),
            ]
        )
        result.save(place)
        oracle.require(oracle.same(result, Fit.load(place)) is None, "saved and loaded differ")


def _reconstruct(draw: Draw, result: Fit, data: Any) -> None:
    oracle.finite("reconstruct", result.reconstruct(data))


def _bic(draw: Draw, result: Fit, data: Any) -> None:
    value = result.bic
    oracle.require(math.isfinite(value) or math.isnan(result.log_likelihood), f"bic = {value}")


def _attributes(draw: Draw, result: Fit, data: Any) -> None:
    """What is asked of attributes and of items; a model without any refuses."""
    from inference.causal import discover_attributes
    from inference.causal.of_fit import profile_posterior
    from inference.inspection import (
        classify_rows,
        item_fit,
        limited_information_fit,
        local_dependence,
    )
    from inference.inspection.attributes import reversals

    what = draw.integer(0, 6)
    if what == 0:
        found = discover_attributes(
            result,
            data,
            num_draws=_few(_setting(draw, 5)),
            level=_setting(draw, 0.05),
            names=_setting(draw, None),
        )
        oracle.finite("score", float(found.causal.score))
    elif what == 1:
        oracle.probabilities(
            "profiles",
            torch.from_numpy(profile_posterior(result, data, _setting(draw, None)).posterior),
            True,
        )
    elif what == 2:
        oracle.probabilities(
            "attributes", torch.as_tensor(classify_rows(result, data).probabilities), False
        )
    elif what == 3:
        limited_information_fit(result, data)
    elif what == 4:
        item_fit(result, data)
    elif what == 5:
        local_dependence(result, data)
    else:
        reversals(result)


def _report(draw: Draw, result: Fit, data: Any) -> None:
    from inference.report import write_report

    with tempfile.TemporaryDirectory() as folder:
        page = write_report(result, data if draw.chance(0.9) else None, Path(folder)).read_text()
        oracle.require(">nan<" not in page, "NaN on the page")


def _selected(draw: Draw, result: Fit, data: Any) -> None:
    from inference.selection import ebic
    from inference.selection.sparsity import graphs_of, polish

    what = draw.integer(0, 2)
    if what == 0:
        oracle.finite("ebic", ebic(result, _setting(draw, 1.0)))
    elif what == 1:
        graphs_of(result, _setting(draw, None))
    else:
        oracle.sound(polish(result, data, _setting(draw, None)), None)


QUESTIONS = {
    "attributes": _attributes,
    "attributes again": _attributes,
    "report": _report,
    "selected": _selected,
    "simulate": _simulate,
    "estimates": _estimates,
    "standard errors": _errors,
    "predictive": _predictive,
    "loo": _loo,
    "arviz": _arviz,
    "align": _align,
    "information": _information,
    "identifiability": _identifiability,
    "bootstrap": _bootstrap,
    "rows": _rows_again,
    "likelihood": _likelihood,
    "latents": _latents,
    "save": _save,
    "reconstruct": _reconstruct,
    "bic": _bic,
}
