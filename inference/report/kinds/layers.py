"""Layers of binary latents: the model in equations, loadings as pictures, the graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from inference.base.structure import Structure
from inference.fitting.names import dims_of, labels_of
from inference.fitting.result import Fit
from inference.plots._common import present_edges
from inference.plots.layers import (
    plot_latent_graph,
    plot_loading_images,
    plot_loadings,
    plot_reconstructions,
)
from inference.report.odds_ratios import odds_ratios
from inference.report.page import number, picture
from inference.report.parts import (
    Equations,
    Finding,
    Note,
    Paragraph,
    Part,
    Section,
    Table,
    Verdict,
)
from inference.report.sections import (
    Subject,
    estimates,
    explained,
    fitted,
    middle,
    predictive,
    settings,
    shape_text,
)
from inference.report.verdicts import (
    on_convergence,
    on_determination,
    on_latents,
    on_prediction,
    record_of,
    verdict,
    what_was_fitted,
)
from inference.report.words import finding, listed, say, verdict_of
from inference.structures.layers.structure import LayeredStructure
from ppl_models.descriptions.layers import GeneralizedLinearLayer
from ppl_models.parts.categorical import Categorical, Ordinal
from ppl_models.parts.repr import counted
from ppl_models.parts.responses import (
    Bernoulli,
    LogNormal,
    NegativeBinomial,
    Normal,
    Poisson,
    ResponseFamily,
    sizes,
)

MOST_EDGES_SHOWN = 60  # rows or columns of a graph as a table


@verdict.register
def _(structure: LayeredStructure, subject: Subject) -> Verdict:
    layers, fit = structure.layers, subject.fit
    sizes = " under ".join(counted(layer.num_parents, "yes-no latent") for layer in layers)
    words = (
        f"{counted(fit.num_rows, 'row')} of {layers[0].num_items} items, which depend on {sizes}."
    )
    if structure.covariates is not None:
        words += (
            f" How likely the {'latents' if len(layers) == 1 else 'deepest latents'} are to be 1"
            f" depends on {listed(list(structure.covariates.names))}."
        )
    if fit.choice is not None:
        words += say(
            "layers.found_graph", sum=sum(int(graph.sum()) for graph in fit.graphs.values())
        )
    step = say("layers.number_step")
    asked = (on_convergence, on_determination, on_latents, _on_edges, on_prediction)
    return verdict_of([what_was_fitted(words), *(ask(subject) for ask in asked)], step)


def _on_edges(subject: Subject) -> Finding | None:
    loose = [
        f"{layer.parent}[{label}]"
        for layer in subject.fit.structure.layers
        for label in _loose(subject, layer)[0]
    ]
    if not loose:
        return None
    words = f"No: {listed(loose)} {'is' if len(loose) == 1 else 'are'} tied to nothing below."
    return finding("layers.edges.loose", words=words)


def _loose(subject: Subject, layer: GeneralizedLinearLayer) -> tuple[list[str], float]:
    """Return latents without an edge below, and the loading that counts as an edge."""
    fit = subject.fit
    present, cut = present_edges(
        layer,
        layer.effects(
            layer.coefficients(fit.params[layer.intercepts], fit.params[layer.loadings])[1]
        )
        .detach()
        .cpu()
        .numpy(),
    )
    labels = labels_of(
        fit, dims_of(fit, layer.parent, (layer.num_parents,))[0], layer.num_parents, subject.names
    )
    return [str(label) for label, tied in zip(labels, present.sum(0), strict=True) if not tied], cut


@fitted.register
def _(structure: LayeredStructure, subject: Subject) -> Iterator[Part]:
    fit = subject.fit
    layers, root = structure.layers, structure.root
    depth = len(layers)
    each = root.law.replace("_k", "_{k}")
    lines = [f"a_{{{depth},k}} ~ {each}" if "_k" in root.law else f"a_{{{depth}}} ~ {each}"]
    own = root.sites()
    rows = [
        [
            "π" if len(own) == 1 else "",
            name,
            shape_text(shape),
            "probabilities" if len(own) == 1 else f"of the distribution of a_{depth}",
        ]
        for name, shape in own.items()
    ]
    if structure.covariates is not None:
        terms = ", ".join(structure.covariates.terms)
        rows = [
            [
                "β",
                name,
                shape_text(shape),
                (say("layers.covariate_prior", terms=terms, scale=structure.covariates.scale)),
            ]
            for name, shape in own.items()
        ]
    for d in range(depth, 0, -1):
        layer = layers[d - 1]
        eta = f"b_{{{d},j}} + Σ_{{k}} W_{{{d},jk}} a_{{{d},k}}"
        if layer.terms is not None:
            eta = f"b_{{{d},j}} + Σ_{{S}} W_{{{d},jS}} Π_{{k∈S}} a_{{{d},k}}"
        if d > 1:
            lines.append(f"a_{{{d - 1},j}} | a_{{{d}}} ~ Bernoulli(σ({eta}))")
        else:
            lines += [f"x_{{j}} | a_{{1}} ~ {line}" for line in _responses(layer, eta)]
        prior, bounds = _priors(layer)
        if layer.graph is not None:
            found = "were found to be edges" if layer.estimated else "are free"
            prior += (
                f"; {int(layer.graph.sum())} of {layer.graph.numel()} {found}, the others are zero"
            )
        rows.append(
            [
                f"W, layer {d}",
                layer.loadings,
                shape_text((layer.num_children, layer.num_features)),
                prior,
            ]
        )
        rows.append([f"b, layer {d}", layer.intercepts, shape_text((layer.num_children,)), bounds])
        if layer.thresholds is not None:
            rows.append(
                [
                    "τ",
                    layer.thresholds,
                    shape_text(fit.params[layer.thresholds].shape),
                    _between(layer),
                ]
            )
        if layer.dispersion is not None:
            rows.append(
                [
                    "γ",
                    layer.dispersion,
                    shape_text(fit.params[layer.dispersion].shape),
                    _spreads(layer),
                ]
            )
    numbers = " and ".join(str(layer.num_parents) for layer in layers)
    yield Paragraph(
        say(
            "layers.model",
            num_items=layers[0].num_items,
            depth=depth,
            word="s" if depth > 1 else "",
            numbers=numbers,
        )
    )
    yield Equations(lines)
    if structure.covariates is not None:
        yield Paragraph(say("layers.covariates", list=listed(list(structure.covariates.names))))
    yield Table(("symbol", "name", "size", "prior or range"), rows)


def _between(layer: GeneralizedLinearLayer) -> str:
    """Description of a layer's thresholds."""
    kinds = {"cumulative": "gaps between neighbouring thresholds", "adjacent": "steps"}
    own = {
        family.link: family.threshold_range
        for family, _, _ in layer.response.blocks(layer.num_items)
        if isinstance(family, Ordinal) and family.link is not None
    }
    return "; ".join(
        f"{kinds[link]}, flat on [{low:g}, {high:g}]" for link, (low, high) in own.items()
    )


def _spreads(layer: GeneralizedLinearLayer) -> str:
    """Description of a layer's dispersions."""
    is_size = sizes(layer.response, layer.num_items)
    words = (["variances"] if not is_size.all() else []) + (
        ["sizes of negative binomial items"] if is_size.any() else []
    )
    return " and ".join(words)


def _priors(layer: GeneralizedLinearLayer) -> tuple[str, str]:
    """Priors of loadings and intercepts, in words."""
    if layer.prior is None:
        widths = sorted(set(layer.item_bounds or (layer.bound,)))
        interval = " or ".join(f"[-{width:g}, {width:g}]" for width in widths) + (
            ", by item" if len(widths) > 1 else ""
        )
        flat = f"flat on {interval}"
        return (
            (
                flat
                if layer.penalty is None
                else f"∝ exp(-penalty) on {interval}, {settings(layer.penalty)}"
            ),
            flat,
        )
    effects, levels = (sorted(set(values)) for values in (layer.prior.effect, layer.prior.level))
    by_item = ", by item" if len(effects) > 1 else ""
    effect = " or ".join(f"N(0, {value:g}²)" for value in effects) + by_item
    level = " or ".join(f"N(-ΣW/2, {value:g}²)" for value in levels) + by_item
    if layer.terms is not None:
        effect, level = (
            f"normal: effects of about {effects[-1]:g} at most",
            f"normal: mean predictor N(0, {levels[-1]:g}²)",
        )
        effect += "; no attribute lowers an item" if layer.rising else ""
        if layer.curved:
            effect, level = (
                f"{words}; additive and reduced chances: half a row in each cell"
                for words in (effect, level)
            )
    return (
        (
            effect
            if layer.penalty is None
            else f"{effect} times exp(-penalty), {settings(layer.penalty)}"
        ),
        level,
    )


def _responses(layer: Any, eta: str) -> list[str]:
    """The items' distribution, one line a family."""
    blocks = layer.response.blocks(layer.num_items)
    out = []
    for family, columns, _ in blocks:
        where = "" if len(blocks) == 1 else f", items {columns.start} to {columns.stop - 1}"
        by_category = eta.replace(",j}", ",jh}").replace(",jk}", ",jhk}").replace(",jS}", ",jhS}")
        out.append(_law(family).replace("ETA_h", by_category).replace("ETA", eta) + where)
    return out


def _law(family: ResponseFamily) -> str:
    """Return an item's distribution, with ETA for its predictor, ETA_h for a category's."""
    if isinstance(family, Ordinal) and family.link == "cumulative":
        return "Ordinal(P(x_{j} ≥ h) = σ(ETA - τ_{jh}), τ_{j1} = 0 < τ_{j2} < ...)"
    if isinstance(family, Ordinal) and family.link == "adjacent":
        return "Ordinal(log P(x_{j} = h) / P(x_{j} = h - 1) = ETA - τ_{jh}, τ_{j1} = 0)"
    if isinstance(family, Categorical):
        return "Categorical(log P(x_{j} = h) / P(x_{j} = 0) = ETA_h)"
    laws = {
        Bernoulli: "Bernoulli(σ(ETA))",
        Poisson: "Poisson(exp(ETA))",
        NegativeBinomial: "NegativeBinomial(mean exp(ETA), size γ_{j})",
        Normal: "Normal(ETA, variance γ_{j})",
        LogNormal: "LogNormal(ETA, variance γ_{j} of the log)",
    }
    return laws.get(type(family), f"{type(family).__name__}(ETA)")


@middle.register
def _(structure: LayeredStructure, subject: Subject) -> list[Section]:
    covariates = (
        []
        if structure.covariates is None
        else [
            Section(
                "covariates", "What the deepest latents depend on", _covariates(structure, subject)
            )
        ]
    )
    return [
        *covariates,
        Section("loadings", "Loadings", _loadings(structure, subject)),
        Section("graph", "Latent graph", _graph(structure, subject)),
        estimates(subject),
    ]


def _covariates(structure: LayeredStructure, subject: Subject) -> Iterator[Part]:
    yield Paragraph(say("layers.odds_ratios"))
    yield odds_ratios(subject, lambda latent: f"{structure.layers[-1].parent}[{latent}]")


def _loadings(structure: LayeredStructure, subject: Subject) -> Iterator[Part]:
    fit, shape = subject.fit, subject.image_shape
    for depth, layer in enumerate(structure.layers):
        if depth == 0 and shape is not None:
            alt = "intercepts and loadings of each latent as pictures"
            yield picture(lambda: plot_loading_images(fit, shape, names=subject.names), alt)
        else:
            site = layer.loadings
            yield picture(
                lambda site=site: plot_loadings(fit, site, names=subject.names),  # type: ignore[misc]
                f"heat map of {site}",
            )
    yield Paragraph(
        "Red raises, blue lowers the chance (or mean) of an item or latent below; white is no"
        " effect."
    )
    yield Paragraph(_units(structure, subject))


SCALES = (
    ((LogNormal,), "logarithms of the column"),  # before Normal, of which it is one
    ((Normal,), "the unit of the column itself"),
    ((Poisson, NegativeBinomial), "logarithms of the mean count"),
    ((Bernoulli, Ordinal), "log-odds"),
    ((Categorical,), "log-odds against the first category"),
)


def _units(structure: LayeredStructure, subject: Subject) -> str:
    """On which scale loadings of each kind of item are."""
    layer = structure.layers[0]
    found: dict[str, list[str]] = {}
    items = [str(name) for name in labels_of(subject.fit, "item", layer.num_items, subject.names)]
    for part in layer.parts():
        words = next(words for families, words in SCALES if isinstance(part.family, families))
        found.setdefault(words, []).extend(items[part.items])
    said = [
        f"in {words}" if len(found) == 1 else f"of {listed(own)} in {words}"
        for words, own in found.items()
    ]
    deeper = " Those of deeper layers are in log-odds." if len(structure.layers) > 1 else ""
    return say("layers.loadings_note", said="; ".join(said), deeper=deeper)


def _graph(structure: LayeredStructure, subject: Subject) -> Iterator[Part]:
    fit = subject.fit
    yield from _choice(fit)
    yield from _edges(structure, subject)
    yield picture(lambda: plot_latent_graph(fit, names=subject.names), "graph of latents and items")
    for layer in structure.layers:
        loose, cut = _loose(subject, layer)
        if loose:
            yield Paragraph(
                say("layers.loose_latents", parent=layer.parent, cut=cut, loose=", ".join(loose))
            )


def _choice(fit: Fit) -> Iterator[Part]:
    """Choice of the graph, in words."""
    choice = fit.choice
    if choice is None:
        return
    edges = sum(int(graph.sum()) for graph in fit.graphs.values())
    yield Paragraph(say("layers.graph_search", edges=edges))
    rows = [
        [
            settings(choice.penalties[which]),
            f"{edges:,}",
            number(value),
            number(score),
            "yes" if i == choice.best else "",
        ]
        for i, (which, edges, value, score) in enumerate(
            zip(
                *(
                    column.tolist()
                    for column in (
                        choice.penalty,
                        choice.num_edges,
                        choice.log_likelihood,
                        choice.ebic,
                    )
                ),
                strict=True,
            )
        )
    ]
    yield Table(("penalty", "edges", "log-likelihood", "EBIC (smaller is better)", "kept"), rows)


def _edges(structure: LayeredStructure, subject: Subject) -> Iterator[Part]:
    fit = subject.fit
    for layer in structure.layers:
        graph = fit.graphs[layer.loadings]
        if bool(graph.all()) or max(graph.shape) > MOST_EDGES_SHOWN:
            continue
        dim = (
            dims_of(fit, layer.intercepts, (layer.num_children,))[0]
            if layer.items is None
            else "item"
        )
        children = labels_of(fit, dim, layer.num_items, subject.names)
        parents = labels_of(
            fit,
            dims_of(fit, layer.parent, (layer.num_parents,))[0],
            layer.num_parents,
            subject.names,
        )
        rows = [
            [str(child), *("1" if edge else "0" for edge in line)]
            for child, line in zip(children, graph.tolist(), strict=True)
        ]
        yield Paragraph(say("layers.edges_note", loadings=layer.loadings))
        yield Table(("", *map(str, parents)), rows)


@explained.register
def _(structure: LayeredStructure, subject: Subject) -> list[Part]:
    if "layers" not in record_of(subject):
        return []
    return [Note(say("layers.conditions_note"))]


@predictive.register
def _(structure: LayeredStructure, subject: Subject) -> Iterator[Part]:
    yield from predictive.dispatch(Structure)(structure, subject)
    shape = subject.image_shape
    if shape is not None and subject.data is not None:
        alt = "rows of the data and their reconstructions"
        yield picture(lambda: plot_reconstructions(subject.fit, subject.data, shape), alt)
