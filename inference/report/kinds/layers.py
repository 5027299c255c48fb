"""Layers of binary latents: the model in equations, loadings as pictures, the graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from inference.base.structure import Structure
from inference.fitting.columns import dims_of, labels_of, variables_of
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
from inference.report.words import finding, say, verdict_of
from inference.structures.layers.structure import LayeredStructure
from ppl_models.descriptions.layers import GeneralizedLinearLayer
from ppl_models.parts.categorical import Categorical, Ordinal
from ppl_models.parts.repr import counted, listed
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
    asked = (on_convergence, on_determination, on_latents, _on_edges, on_prediction)
    return verdict_of(
        [what_was_fitted(words), *(ask(subject) for ask in asked)],
        *subject.number_step(say("layers.number_step")),
    )


def _on_edges(subject: Subject) -> Finding | None:
    said = []
    for layer in subject.fit.structure.layers:
        labels, cut = _loose(subject, layer)
        loose = [f"{layer.parent}[{label}]" for label in labels]
        if loose:
            are = "is" if len(loose) == 1 else "are"
            said.append(say("layers.loose", loose=listed(loose), are=are, cut=cut))
    return finding("layers.edges.loose", words=f"No: {' '.join(said)}") if said else None


def _parents(subject: Subject, layer: GeneralizedLinearLayer) -> list[str]:
    """Return the names of a layer's latents."""
    dim, size = dims_of(subject.fit, layer.parent, (layer.num_parents,))[0], layer.num_parents
    return list(map(str, labels_of(subject.fit, dim, size, subject.names)))


def _loose(subject: Subject, layer: GeneralizedLinearLayer) -> tuple[list[str], float]:
    """Return latents without an edge below, and the loading that counts as an edge."""
    fit = subject.fit
    present, cut = present_edges(fit, layer)
    labels = _parents(subject, layer)
    return [label for label, tied in zip(labels, present.sum(0), strict=True) if not tied], cut


@fitted.register
def _(structure: LayeredStructure, subject: Subject) -> Iterator[Part]:
    fit = subject.fit
    layers, root = structure.layers, structure.root
    depth = len(layers)
    each = root.equation.replace("_k", "_{k}")
    lines = [f"a_{{{depth},k}} ~ {each}" if "_k" in root.equation else f"a_{{{depth}}} ~ {each}"]
    own = root.sites()
    symbol, meaning = (
        ("π", "probabilities") if len(own) == 1 else ("", f"of the distribution of a_{depth}")
    )
    if structure.covariates is not None:
        terms, scale = ", ".join(structure.covariates.terms), structure.covariates.scale
        symbol, meaning = "β", say("layers.covariate_prior", terms=terms, scale=scale)
    rows = [[symbol, name, shape_text(shape), meaning] for name, shape in own.items()]
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
            edges = fit.graphs[layer.loadings] if layer.estimated else layer.graph
            found = "were found to be edges" if layer.estimated else "are free"
            prior += f"; {int(edges.sum())} of {layer.graph.numel()} {found}, the others are zero"
        size = shape_text((layer.num_children, layer.num_features))
        rows.append([f"W, layer {d}", layer.loadings, size, prior])
        rows.append([f"b, layer {d}", layer.intercepts, shape_text((layer.num_children,)), bounds])
        more = (("τ", layer.thresholds, _between), ("γ", layer.dispersion, _spreads))
        for symbol, name, words_of in more:
            if name is not None:
                known = " and ".join(each.name for each in variables_of(fit, subject.names)[name])
                rows.append([symbol, known, shape_text(fit.params[name].shape), words_of(layer)])
    *most, last = [str(layer.num_parents) for layer in layers]
    numbers = f"{', '.join(most)} and {last}" if most else last
    noun = "latent" if last == "1" else "latents"
    latents = f"{numbers} binary {noun} a"
    if depth > 1:
        latents = f"{depth} layers of binary latents a, with {numbers} {noun} from the bottom up"
    yield Paragraph(
        say(
            "layers.model",
            num_items=layers[0].num_items,
            latents=latents,
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
    words = [] if is_size.all() else ["variances"]
    return " and ".join(words + ["sizes of negative binomial items"] * bool(is_size.any()))


def _priors(layer: GeneralizedLinearLayer) -> tuple[str, str]:
    """Priors of loadings and intercepts, in words."""
    if layer.prior is None:
        widths = sorted(set(layer.item_bounds or (layer.bound,)))
        interval = " or ".join(f"[-{width:g}, {width:g}]" for width in widths)
        flat = f"flat on {interval}{', by item' if len(widths) > 1 else ''}"
        if layer.penalty is None:
            return flat, flat
        return f"{flat.replace('flat', '∝ exp(-penalty)', 1)}, {settings(layer.penalty)}", flat
    effects, levels = (sorted(set(values)) for values in (layer.prior.effect, layer.prior.level))
    by_item = ", by item" if len(effects) > 1 else ""
    effect = " or ".join(f"N(0, {value:g}²)" for value in effects) + by_item
    level = " or ".join(f"N(-ΣW/2, {value:g}²)" for value in levels) + by_item
    if layer.terms is not None:
        effect = f"normal: effects with a standard deviation of about {effects[-1]:g}"
        effect += "; no attribute lowers an item" if layer.rising else ""
        level = f"normal: mean predictor N(0, {levels[-1]:g}²)"
        if layer.curved:
            half = "; additive and reduced chances: half a row in each cell"
            effect, level = effect + half, level + half
    if layer.penalty is not None:
        effect = f"{effect} times exp(-penalty), {settings(layer.penalty)}"
    return effect, level


def _responses(layer: Any, eta: str) -> list[str]:
    """The items' distribution, one line a family."""
    blocks = layer.response.blocks(layer.num_items)
    out = []
    for family, columns, _ in blocks:
        where = "" if len(blocks) == 1 else f", items {columns.start} to {columns.stop - 1}"
        by_category = eta.replace(",j}", ",jh}").replace(",jk}", ",jhk}").replace(",jS}", ",jhS}")
        out.append(_equation_of(family).replace("ETA_h", by_category).replace("ETA", eta) + where)
    return out


def _equation_of(family: ResponseFamily) -> str:
    """Return an item's distribution, with ETA for its predictor, ETA_h for a category's."""
    if isinstance(family, Ordinal) and family.link == "cumulative":
        return "Ordinal(P(x_{j} ≥ h) = σ(ETA - τ_{jh}), τ_{j1} = 0 < τ_{j2} < ...)"
    if isinstance(family, Ordinal) and family.link == "adjacent":
        return "Ordinal(log P(x_{j} = h) / P(x_{j} = h - 1) = ETA - τ_{jh}, τ_{j1} = 0)"
    if isinstance(family, Categorical):
        return "Categorical(log P(x_{j} = h) / P(x_{j} = 0) = ETA_h)"
    equations = {
        Bernoulli: "Bernoulli(σ(ETA))",
        Poisson: "Poisson(exp(ETA))",
        NegativeBinomial: "NegativeBinomial(mean exp(ETA), size γ_{j})",
        Normal: "Normal(ETA, variance γ_{j})",
        LogNormal: "LogNormal(ETA, variance γ_{j} of the log)",
    }
    return equations.get(type(family), f"{type(family).__name__}(ETA)")


@middle.register
def _(structure: LayeredStructure, subject: Subject) -> list[Section]:
    covariates = []
    if structure.covariates is not None:
        title = "What the deepest latents depend on"
        covariates = [Section("covariates", title, _covariates(structure, subject))]
    return [
        *covariates,
        Section("loadings", "Loadings", _loadings(structure, subject)),
        Section("graph", "Latent graph", _graph(structure, subject)),
        estimates(subject),
    ]


def _covariates(structure: LayeredStructure, subject: Subject) -> Iterator[Part]:
    yield Paragraph(say("layers.odds_ratios"))
    yield odds_ratios(subject, str)


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
    yield from graph_choice(fit)
    yield from _edges(structure, subject)
    yield picture(lambda: plot_latent_graph(fit, names=subject.names), "graph of latents and items")
    for layer in structure.layers:
        loose, cut = _loose(subject, layer)
        if loose:
            yield Paragraph(
                say("layers.loose_latents", parent=layer.parent, cut=cut, loose=", ".join(loose))
            )


def graph_choice(fit: Fit) -> Iterator[Part]:
    """Choice of the graph, in words."""
    choice = fit.choice
    if choice is None:
        return
    edges = sum(int(graph.sum()) for graph in fit.graphs.values())
    ebic = [number(value) for value in choice.ebic.tolist()]
    tied = [i for i, value in enumerate(ebic) if value == ebic[choice.best]]
    ties = say("layers.tied", num=len(tied)) if len(tied) > 1 else ""
    if len(choice.penalty) > len(choice.penalties):
        ties = say("layers.several_starts")
    yield Paragraph(say("layers.graph_search", edges=edges, ties=ties))
    is_changed = edges != int(choice.num_edges[choice.best])
    kept = "went on" if is_changed else "yes"
    columns = {
        "penalty": [settings(choice.penalties[i]) for i in choice.penalty.tolist()],
        "edges": [f"{num:,}" for num in choice.num_edges.tolist()],
        "log-likelihood": [number(value) for value in choice.log_likelihood.tolist()],
        "EBIC (smaller is better)": ebic,
        "kept": [
            kept if i == choice.best else "as good" if i in tied else "" for i in range(len(ebic))
        ],
    }
    if is_changed:
        final = "" if choice.final_ebic is None else number(choice.final_ebic)
        ended = (f"{edges:,}", number(fit.log_likelihood), final, "yes")
        last = ("edges added and taken away", *ended)
        for column, text in zip(columns.values(), last, strict=True):
            column.append(text)
    yield Table.of(columns)


def _full(latent: str, names: Sequence[Any]) -> list[str]:
    """Names of latents, numbers with that of their site."""
    return [f"{latent}[{name}]" if str(name).isdecimal() else str(name) for name in names]


def _edges(structure: LayeredStructure, subject: Subject) -> Iterator[Part]:
    fit, layers = subject.fit, structure.layers
    for d, layer in enumerate(layers):
        graph = fit.graphs[layer.loadings]
        if bool(graph.all()) or max(graph.shape) > MOST_EDGES_SHOWN:
            continue
        is_items = layer.items is not None
        dims = ("item",) if is_items else dims_of(fit, layer.intercepts, (layer.num_children,))
        children = labels_of(fit, dims[0], layer.num_items, subject.names)
        parents = _full(layer.parent, _parents(subject, layer))
        children = children if is_items else _full(layers[d - 1].parent, children)
        rows = [
            [str(child), *("1" if edge else "0" for edge in line)]
            for child, line in zip(children, graph.tolist(), strict=True)
        ]
        yield Paragraph(say("layers.edges_note", loadings=layer.loadings))
        yield Table(("", *parents), rows)


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
