"""Factorizations: the model in equations, signatures as pictures, and how much of the data each component makes."""

from __future__ import annotations

from inference.plots.components import plot_signatures
from inference.plots.layers import plot_loadings
from inference.report.page import number, paragraph, picture, table
from inference.report.sections import Section, Subject, estimates, fitted, middle, shape_text
from inference.structures.factorization.factor_analysis import FactorAnalysisStructure
from inference.structures.factorization.structure import FactorizationStructure
from inference.structures.factorization.usage import UsageStructure

__all__: list[str] = []


def _written(subject: Subject, words: str, *lines: str) -> str:
    text = paragraph(words) + "".join(f'<p class="equation">{line}</p>\n' for line in lines)
    rows = [[name, shape_text(value.shape)] for name, value in subject.fit.params.items()]
    rows += [[f"{name}, of the rows", shape_text(value.shape)] for name, value in (subject.fit.local or {}).items()]
    return text + table(("estimate", "size"), rows)


@fitted.register
def _(structure: FactorizationStructure, subject: Subject) -> str:
    about = structure.about
    law = f"NegativeBinomial, {about.variance} variance, mean" if about.dispersed else "Poisson, mean" if about.counts else "Normal, mean"
    words = f"Each of the {about.num_items} items of a row is a sum over {about.num_components} components: their signatures s, in amounts z of the row's own."
    return _written(subject, words, f"x<sub>ij</sub> ~ {law} Σ<sub>k</sub> z<sub>ik</sub> s<sub>kj</sub>")


@fitted.register
def _(structure: UsageStructure, subject: Subject) -> str:
    about = structure.about
    words = f"Each of {about.num_components} components is absent or present in a row (b), and if present, in an amount z of the row's own."
    lines = (
        "b<sub>ik</sub> ~ Bernoulli(π<sub>k</sub>)",
        "z<sub>ik</sub> ~ Gamma, mean m<sub>k</sub>",
        "x<sub>ij</sub> ~ Poisson(Σ<sub>k</sub> b<sub>ik</sub> z<sub>ik</sub> s<sub>kj</sub>)",
    )
    return _written(subject, words, *lines)


@fitted.register
def _(structure: FactorAnalysisStructure, subject: Subject) -> str:
    words = "Rows are sums of factors z with a standard normal law, integrated out, and noise with a scale of its own for every item."
    lines = ("z<sub>i</sub> ~ Normal(0, I)", "x<sub>ij</sub> ~ Normal(μ<sub>j</sub> + Σ<sub>k</sub> z<sub>ik</sub> s<sub>kj</sub>, σ<sub>j</sub>)")
    return _written(subject, words, *lines)


@middle.register(FactorizationStructure)
@middle.register(UsageStructure)
def _(structure: FactorizationStructure | UsageStructure, subject: Subject) -> list[Section]:
    fit = subject.fit
    signatures = fit.params["signatures"].detach().cpu().numpy()
    channels = fit.item_names or tuple(str(j) for j in range(signatures.shape[1]))
    text = picture(lambda: plot_signatures(signatures, channels), "signatures, one panel a component")
    amounts = (fit.local or {}).get("activities")
    if amounts is not None:
        amounts = amounts.detach().abs()
        shares = amounts.sum(0) / amounts.sum()
        in_use = (amounts > 0.01 * amounts.sum(-1, keepdim=True)).double().mean(0)
        rows = [[f"component {k + 1}", number(float(shares[k]), 3), number(float(in_use[k]), 3)] for k in range(len(shares))]
        text += paragraph("Components are in the order of falling total amount.")
        text += table(("component", "share of all amounts", "share of rows that it makes more than 1 % of"), rows)
    return [("signatures", "Signatures", text), estimates(subject)]


@middle.register
def _(structure: FactorAnalysisStructure, subject: Subject) -> list[Section]:
    text = picture(lambda: plot_loadings(subject.fit, "signatures", names=subject.names), "heat map of the factors' signatures")
    text += paragraph("Red raises, blue lowers an item as the factor grows. Factors are determined up to a rotation.")
    return [("signatures", "Factors", text), estimates(subject)]
