"""A fit as one self-contained page: what was fitted, the numbers, the pictures, the checks."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from inference.fitting.names import Names, dims_of, labels_of
from inference.fitting.observed import as_matrix
from inference.plots import fit as plots
from inference.plots import layers as plot_layers
from inference.plots import options as plots_options
from inference.plots._common import check_image_shape, present_edges
from inference.report.page import note, number, paragraph, picture, table, write_page
from ppl_models.parts.responses import Bernoulli, LogNormal, Normal, Poisson, ResponseFamily

if TYPE_CHECKING:

    from inference.fitting.result import Fit

__all__ = ["HasText", "write_report"]

OPTION_EQUATIONS = (
    "a<sub>t</sub> ~ low-level policy of option o<sub>t</sub> in state s<sub>t</sub>",
    "o<sub>t+1</sub> ~ high-level policy of option o<sub>t</sub> in the new state s<sub>t+1</sub>",
)
MOST_LATENTS = 60  # lines of the table of latents


class HasText(Protocol):
    """A report of another check that can say itself in words."""

    def text(self) -> str: ...


def write_report(
    fit: Fit,
    data: Any,
    path: str | Path,
    image_shape: tuple[int, int] | None = None,
    identifiability: str | HasText | None = None,
    names: Names | None = None,
) -> Path:
    """Write ``report.html``: one file, pictures inside, nothing fetched from elsewhere, every text escaped.

    A picture that the model cannot be drawn as is left out, and the page says why.

    Args:
        fit: the fit.
        data: the rows it was fitted to, (N, J); None leaves out what needs them.
        path: the file, replaced if it exists; or an existing folder, for ``report.html`` in it.
        image_shape: (height, width) where the items are pixels, row by row.
        identifiability: the verdict, as text or as a report with ``.text()``.
        names: names of the entries by dim, for example ``{"latent_1": ["stroke", "loop"]}``.

    Returns:
        The file written.

    Raises:
        ValueError: if ``data`` does not fit the model, or ``image_shape`` does not hold the items.
    """
    file = Path(path)
    file = file / "report.html" if file.is_dir() else file
    if image_shape is not None and hasattr(fit.model, "layers"):
        check_image_shape(image_shape, fit.model.layers()[0].num_children, "write_report")
    if image_shape is not None and hasattr(fit.model, "causes"):
        check_image_shape(image_shape, fit.model.causes().num_items, "write_report")
    if data is not None and hasattr(fit.model, "check_data"):
        as_matrix(fit, data)
    sections = [
        ("fitted", "What was fitted", _fitted(fit)),
        ("numbers", "Numbers", _numbers(fit)),
        ("warnings", "Warnings", _warnings(fit)),
        ("loadings", "Loadings", _loadings(fit, image_shape, names)),
        ("graph", "Latent graph", _graph(fit, names)),
        ("latents", "Latents", _latents(fit, data, names)),
        ("convergence", "Convergence", _convergence(fit)),
        ("predictive", "Posterior predictive check", _predictive(fit, data, image_shape)),
        ("identifiability", "Identifiability", _identifiability(identifiability)),
    ]
    if hasattr(fit.model, "num_options"):
        sections[3:5] = [("policies", "Policies", _policies(fit)), ("time", "Options over time", _option_times(fit, data))]
    return write_page(file, f"{_model_name(fit)}: fit report", sections)


# -------------------------------------------------------------------- names


def _shape(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape)) or "1"


def _model_name(fit: Fit) -> str:
    return (
        type(fit.model).__name__ if dataclasses.is_dataclass(fit.model) else getattr(fit.model, "__name__", "program")
    )


def _settings(record: Any) -> str:
    """A record of settings with its numbers cut to four digits."""
    return re.sub(r"\d+\.\d{5,}", lambda digits: f"{float(digits[0]):.4g}", repr(record))


# -------------------------------------------------------------------- sections


def _fitted(fit: Fit) -> str:
    words = (inspect.getdoc(fit.model) or "").strip().split("\n\n")[0].replace("\n", " ")
    described = not isinstance(fit.model, type) and bool(words)
    text = paragraph(words) if described else ""
    text += paragraph(f"Fitted to {fit.num_rows:,} rows by {_settings(fit.method)}.")
    if not hasattr(fit.model, "layers") or not hasattr(fit.model, "root"):
        if hasattr(fit.model, "num_options"):
            text += "".join(f'<p class="equation">{line}</p>\n' for line in OPTION_EQUATIONS)
        else:
            text += note("The model describes no layers, so its parameters are listed without an equation.")
        rows = [[name, _shape(value.shape)] for name, value in fit.params.items()]
        return text + table(("parameter", "shape"), rows)
    layers, root = fit.model.layers(), fit.model.root()
    depth = len(layers)
    equations = [f"a<sub>{depth},k</sub> ~ Bernoulli(π<sub>k</sub>)"]
    rows = [["π", root.proportions, _shape((root.num_latents,)), "probabilities"]]
    for d in range(depth, 0, -1):
        layer = layers[d - 1]
        eta = f"b<sub>{d},j</sub> + Σ<sub>k</sub> W<sub>{d},jk</sub> a<sub>{d},k</sub>"
        if layer.terms is not None:
            eta = f"b<sub>{d},j</sub> + Σ<sub>S</sub> W<sub>{d},jS</sub> Π<sub>k∈S</sub> a<sub>{d},k</sub>"
        if d > 1:
            equations.append(f"a<sub>{d - 1},j</sub> | a<sub>{d}</sub> ~ Bernoulli(σ({eta}))")
        else:
            equations += [f"x<sub>j</sub> | a<sub>1</sub> ~ {line}" for line in _responses(layer, eta)]
        widths = sorted(set(layer.item_bounds or (layer.bound,)))
        interval = " or ".join(f"[-{width:g}, {width:g}]" for width in widths) + (", by item" if len(widths) > 1 else "")
        bounds = f"flat on {interval}"
        prior = (
            bounds
            if layer.penalty is None
            else f"∝ exp(-penalty) on {interval}, {_settings(layer.penalty)}"
        )
        if layer.graph is not None:
            prior += f"; {int(layer.graph.sum())} of {layer.graph.numel()} are free, the others zero"
        rows.append([f"W, layer {d}", layer.loadings, _shape((layer.num_children, layer.num_features)), prior])
        rows.append([f"b, layer {d}", layer.intercepts, _shape((layer.num_children,)), bounds])
        if layer.dispersion is not None:
            rows.append(["γ", layer.dispersion, _shape(fit.params[layer.dispersion].shape), "variances"])
    sizes = " and ".join(str(layer.num_parents) for layer in layers)
    text += paragraph(
        f"{layers[0].num_children} items x rest on {depth} layer{'s' if depth > 1 else ''} of binary latents a, "
        f"with {sizes} latents from the bottom up; σ is the logistic function."
    )
    text += "".join(f'<p class="equation">{line}</p>\n' for line in equations)
    return text + table(("symbol", "name", "size", "prior or range"), rows)


def _responses(layer: Any, eta: str) -> list[str]:
    """The items' distribution, one line a family."""
    blocks = layer.response.blocks(layer.num_children)
    out = []
    for family, columns, _ in blocks:
        where = "" if len(blocks) == 1 else f", items {columns.start} to {columns.stop - 1}"
        out.append(_law(family).format(eta=eta) + where)
    return out


def _law(family: ResponseFamily) -> str:
    laws = {
        Bernoulli: "Bernoulli(σ({eta}))",
        Poisson: "Poisson(exp({eta}))",
        Normal: "Normal({eta}, variance γ<sub>j</sub>)",
        LogNormal: "LogNormal({eta}, variance γ<sub>j</sub> of the log)",
    }
    return laws.get(type(family), escape(type(family).__name__) + "({eta})")


def _numbers(fit: Fit) -> str:
    ends = np.asarray(fit.restarts.objective, dtype=np.float64)
    ends = ends[np.isfinite(ends)]
    rows = [
        ["log-likelihood (latents summed out)", number(fit.log_likelihood)],
        ["log-likelihood a row", number(fit.log_likelihood / fit.num_rows, 4)],
        [f"objective: {fit.objective_name}", number(fit.objective)],
        ["free parameters", f"{fit.num_parameters:,}"],
        ["BIC (smaller is better)", number(fit.bic)],
        ["rows", f"{fit.num_rows:,}"],
        *([["steps of all sequences", f"{fit.num_observations:,}"]] if fit.num_observations not in (None, fit.num_rows) else []),
        ["converged", "yes" if fit.converged else "no"],
        ["iterations", f"{fit.num_iterations:,}"],
        ["seconds, whole call", number(fit.seconds)],
        ["seed", str(fit.seed)],
    ]
    if len(ends) > 1:
        near = int((ends > ends.max() - 1.0).sum())
        spread = f"best {number(ends.max())}, median {number(float(np.median(ends)))}, worst {number(ends.min())}"
        converged = int(np.asarray(fit.restarts.converged).sum())
        rows.append([f"{len(ends)} starts, {fit.objective_name}", spread])
        rows.append(["starts that converged", f"{converged} of {len(ends)}"])
        rows.append(["starts within 1 nat of the best", f"{near} of {len(ends)}"])
    return table((), rows)


def _warnings(fit: Fit) -> str:
    texts = list(fit.warnings)
    if not fit.converged and not any("converge" in text for text in texts):
        texts.append("The fit did not converge.")
    if not texts:
        return paragraph("None.")
    return f'<ul class="warnings">{"".join(f"<li>{escape(text)}</li>" for text in texts)}</ul>\n'


def _loadings(fit: Fit, image_shape: tuple[int, int] | None, names: Names | None) -> str:
    if hasattr(fit.model, "causes"):
        return _causes(fit, image_shape)
    if not hasattr(fit.model, "layers"):
        return note("Not drawn: the model describes no layers with loadings.")
    text = ""
    for depth, layer in enumerate(fit.model.layers()):
        if depth == 0 and image_shape is not None:
            alt = "intercepts and loadings of each latent as pictures"
            text += picture(lambda: plot_layers.plot_loading_images(fit, image_shape, names=names), alt)
        else:
            site = layer.loadings
            text += picture(lambda site=site: plot_layers.plot_loadings(fit, site, names=names), f"heat map of {site}")  # type: ignore[misc]
    return text + paragraph("Red raises, blue lowers the chance (or mean) of an item or latent below; white is none.")


def _causes(fit: Fit, image_shape: tuple[int, int] | None) -> str:
    """Latents of a noisy-OR network: what each switches on, and what the filter says of it."""
    from inference.inspection.noisy_or import filter_latents
    from inference.plots import noisy_or as plots_noisy_or

    about = fit.model.causes()  # type: ignore[attr-defined]
    params = {"prior": fit.params[about.prior], "failure": fit.params[about.failure]}
    verdict = filter_latents(params)
    if image_shape is not None:
        alt = "each latent as an image of what it switches on"
        text = picture(lambda: plots_noisy_or.plot_latents(params, image_shape, verdict), alt)
    else:
        text = picture(lambda: plots_noisy_or.plot_failures(params, fit.item_names), "heat map of 1 - failure")
    rows = []
    for i, (prior, failure) in enumerate(zip(params["prior"], params["failure"], strict=True)):
        word = "discarded" if i in verdict.discarded else f"double of {verdict.doubles[i]}" if i in verdict.doubles else "kept"
        strong = failure.argsort()[: int((failure < 0.5).sum())].tolist()
        shown = ", ".join(fit.item_names[j] if fit.item_names else str(j) for j in strong[:12])
        rows.append([str(i), number(float(prior), 4), str(len(strong)), shown + (", ..." if len(strong) > 12 else ""), word])
    text += paragraph("Black: the latent, being on, always switches the item on; white: never.")
    return text + table(("latent", "prior", "items with failure below 0.5", "the surest first", "by the filter"), rows[:MOST_LATENTS])


def _policies(fit: Fit) -> str:
    """Of a model of hidden options."""
    names = fit.item_names[:-1] if hasattr(fit.model, "policy_chain") else ()
    text = picture(lambda: plots_options.plot_policy_tables(fit, names), "what every option does")
    if hasattr(fit.model, "chain"):
        text += picture(lambda: plots_options.plot_option_switches(fit), "where options are kept and where they end")
    return text


def _option_times(fit: Fit, data: Any) -> str:
    if data is None:
        return note("Needs the data.")
    text = picture(lambda: plots_options.plot_option_occupancy(fit, data, sequence=0), "options over the first sequence")
    if fit.num_rows > 1:
        text += picture(lambda: plots_options.plot_option_occupancy(fit, data), "share of every option over time")
        text += paragraph(f"First the first sequence, then the average over all {fit.num_rows:,}.")
    return text


def _graph(fit: Fit, names: Names | None) -> str:
    text = picture(lambda: plot_layers.plot_latent_graph(fit, names=names), "graph of latents and items")
    for layer in fit.model.layers() if hasattr(fit.model, "layers") else ():
        present, cut = present_edges(layer, layer.effects(fit.params[layer.loadings]).detach().cpu().numpy())
        labels = labels_of(fit, dims_of(fit, layer.parent, (layer.num_parents,))[0], layer.num_parents, names)
        loose = [str(label) for label, tied in zip(labels, present.sum(0), strict=True) if not tied]
        if loose:
            text += paragraph(
                f"In {layer.parent}, tied to nothing below (no loading over {cut:.3g}): {', '.join(loose)}."
            )
    return text


def _latents(fit: Fit, data: Any, names: Names | None) -> str:
    if data is None:
        return note("Needs the data.")
    rows, num_rows = [], 0
    for site, posterior in fit.posterior_latents(data).items():
        values = posterior.detach().cpu().numpy()
        on, num_rows = values.reshape(-1, values.shape[-1]), len(values)
        if hasattr(fit.model, "num_options"):
            on = on[on.sum(-1) > 0]  # not the steps after the end of a sequence
        labels = labels_of(fit, dims_of(fit, site, values.shape[1:])[-1], on.shape[1], names)
        clipped = np.clip(on, 1e-300, 1.0)
        complement = np.clip(1.0 - on, 1e-300, 1.0)
        entropy = -(on * np.log2(clipped) + (1.0 - on) * np.log2(complement))
        unsure = (on > 0.1) & (on < 0.9)
        for k, label in enumerate(labels):
            share = [number(float(part[:, k].mean()), 3) for part in (on, entropy, unsure)]
            rows.append([site, str(label), *share])
    more = note(f"The first {MOST_LATENTS} of {len(rows)} are shown.") if len(rows) > MOST_LATENTS else ""
    head = ("site", "latent", "share of rows on", "mean posterior entropy (bits)", "share of rows unsure (0.1 to 0.9)")
    return paragraph(f"Over the {num_rows:,} rows given.") + table(head, rows[:MOST_LATENTS]) + more


def _convergence(fit: Fit) -> str:
    text = picture(lambda: plots.plot_trace(fit), f"{fit.trace.name} over iterations")
    if len(fit.restarts.objective) > 1:
        text += picture(lambda: plots.plot_restarts(fit), "spread of the objective over starts")
    return text


def _predictive(fit: Fit, data: Any, image_shape: tuple[int, int] | None) -> str:
    if data is None:
        return note("Needs the data.")
    text = picture(lambda: plots.plot_posterior_predictive(fit, data), "data simulated from the fit beside the data")
    if image_shape is not None:
        alt = "rows of the data and their reconstructions"
        text += picture(lambda: plot_layers.plot_reconstructions(fit, data, image_shape), alt)
    return text


def _identifiability(verdict: str | HasText | None) -> str:
    if verdict is None:
        return note("Not checked in this run: a good fit does not by itself mean that its latents are determined.")
    text = verdict if isinstance(verdict, str) else verdict.text()
    return f"<pre>{escape(text)}</pre>\n"
