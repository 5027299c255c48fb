"""The report page: what it says, that it is safe, and that it needs nothing from elsewhere."""

from __future__ import annotations

import base64
import dataclasses
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.fitted_examples import HOSTILE, bernoulli_table, blocks_fit, encoder_fit, mixture_fit

from inference.report import write_report


class Page(HTMLParser):
    """Tags, attributes, pictures and the visible text of each section."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html, self.tags, self.attributes = html, [], []
        self.sections: dict[str, str] = {}
        self._section = "top"
        self._open: list[str] = []
        self.feed(html)
        assert not self._open, f"unclosed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "section":
            self._section = dict(attrs)["id"] or ""
        if tag not in ("meta", "img"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        if tag == "section":
            self._section = "top"

    def handle_data(self, data: str) -> None:
        self.sections[self._section] = self.sections.get(self._section, "") + data

    @property
    def pictures(self) -> dict[str, Image.Image]:
        found = re.findall(
            r'<img alt="([^"]*)" src="data:image/png;base64,([^"]+)" style="--least: \d+px">',
            self.html,
        )
        return {alt: Image.open(io.BytesIO(base64.b64decode(code))) for alt, code in found}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    folder = tmp_path_factory.mktemp("report")
    file = write_report(encoder_fit(), bernoulli_table(), folder, image_shape=(2, 4))
    assert file == folder / "report.html"
    assert [path.name for path in folder.iterdir()] == ["report.html"]
    return Page(file.read_text(encoding="utf-8"))


def test_every_section_is_there(page: Page) -> None:
    expected = [
        "verdict",
        "warnings",
        "fitted",
        "numbers",
        "loadings",
        "graph",
        "estimates",
        "latents",
        "predictive",
        "convergence",
        "identifiability",
    ]
    assert [key for key in page.sections if key != "top"] == expected
    links = [value for name, value in page.attributes if name == "href"]
    assert links == [f"#{key}" for key in expected]


def test_it_says_what_was_fitted(page: Page) -> None:
    text = page.sections["fitted"]
    assert "Deep discrete encoder" in text
    assert "8 items x depend on 2 layers of binary latents a, with 3 and 2 latents" in text
    assert "xj | a1 ~ Bernoulli(σ(b1,j + Σk W1,jk a1,k))" in text
    assert "a1,j | a2 ~ Bernoulli(σ(b2,j + Σk W2,jk a2,k))" in text
    assert "a2,k ~ Bernoulli(πk)" in text
    assert "TruncatedLasso(slope_at_zero=2.0, threshold=0.3)" in text
    assert "8 × 3" in text
    assert "EM(max_iterations=8" in text


def test_it_gives_the_numbers_under_their_names(page: Page) -> None:
    fit, text = encoder_fit(), page.sections["numbers"]
    ends = fit.restarts.objective.numpy()
    assert f"log-likelihood (latents summed out){fit.log_likelihood:,.2f}" in text
    assert f"objective: {fit.objective_name}{fit.objective:,.2f}" in text
    assert f"BIC (smaller is better){fit.bic:,.2f}" in text
    assert "convergedno" in text
    assert "iterations8" in text
    assert f"best {ends.max():,.2f}, median {np.median(ends):,.2f}, worst {ends.min():,.2f}" in text


def test_every_warning_is_shown_and_hostile_names_are_text(page: Page) -> None:
    fit = encoder_fit()
    assert any(HOSTILE in warning for warning in fit.warnings)  # the constant column's
    for warning in fit.warnings:
        assert warning in page.sections["warnings"]
    assert "script" not in page.tags
    assert "<script" not in page.html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.html


def test_hostile_text_anywhere_is_escaped(tmp_path: Path) -> None:
    class Verdict:
        def text(self) -> str:
            return f"generic <b>bold</b> {HOSTILE}"

    fit = dataclasses.replace(encoder_fit(), warnings=(HOSTILE,), objective_name=HOSTILE)
    names = {"latent_1": [HOSTILE, '"><img src=x>', "{title}"]}
    file = write_report(
        fit,
        bernoulli_table(),
        tmp_path / "new" / "page.html",
        identifiability=Verdict(),
        names=names,
    )
    other = Page(file.read_text(encoding="utf-8"))
    assert not {"script", "b"} & set(other.tags)
    assert all(
        value is not None and value.startswith("data:image/png")
        for name, value in other.attributes
        if name == "src"
    )
    assert f"generic <b>bold</b> {HOSTILE}" in other.sections["identifiability"]
    for name in names["latent_1"]:
        assert name in other.sections["latents"]


def test_nothing_is_fetched_from_elsewhere(page: Page) -> None:
    bare = re.sub(r"base64,[A-Za-z0-9+/=]+", "", page.html)
    assert "http" not in bare
    assert "url(" not in bare
    assert "@import" not in bare
    assert not {"link", "script", "iframe", "object", "embed", "base"} & set(page.tags)
    assert all(
        name
        in {
            "id",
            "class",
            "style",
            "data-lines",
            "href",
            "src",
            "alt",
            "lang",
            "charset",
            "name",
            "content",
            "data-head",
        }
        for name, _ in page.attributes
    )


def test_pictures_are_there_and_not_blank(page: Page) -> None:
    pictures = page.pictures
    assert set(pictures) == {
        "intercepts and loadings of each latent as pictures",
        "heat map of loadings_2",
        "graph of latents and items",
        f"{encoder_fit().trace.name} over iterations",
        "spread of the objective over starts",
        "data simulated from the fit beside the data",
        "rows of the data and their reconstructions",
    }
    for alt, picture in pictures.items():
        values = np.asarray(picture.convert("L"))
        assert (values < 250).mean() > 0.01, alt
        assert len(np.unique(values)) > 20, alt


def test_latents_are_summarised(page: Page) -> None:
    posterior = encoder_fit().posterior_latents(bernoulli_table())
    text = page.sections["latents"]
    for site, values in posterior.items():
        for k, on in enumerate(values.numpy().T):
            entropy = -(on * np.log2(on) + (1 - on) * np.log2(1 - on)).mean()
            assert f"{site}{k}{on.mean():.3f}{entropy:.3f}" in text.replace("\n", "")
    assert "Of 60 rows." in text


def test_identifiability_is_worked_out_unless_given(page: Page, tmp_path: Path) -> None:
    assert "Identifiability: not established" in page.sections["identifiability"]
    file = write_report(
        encoder_fit(), None, tmp_path / "given.html", identifiability="strictly identifiable"
    )
    given = Page(file.read_text(encoding="utf-8"))
    assert given.sections["identifiability"].split("\n")[:2] == [
        "Identifiability",
        "strictly identifiable",
    ]
    assert "Needs the data" in given.sections["latents"]
    assert "Needs the data" in given.sections["predictive"]
    assert "heat map of loadings_1" in given.pictures


def test_a_latent_tied_to_nothing_is_named(tmp_path: Path) -> None:
    fit = encoder_fit()
    loadings = torch.tensor([[1.0, 0.0], [-1.0, 0.1], [0.0, 0.0]], dtype=torch.float64)
    changed = dataclasses.replace(fit, params=fit.params | {"loadings_2": loadings})
    file = write_report(
        changed, None, tmp_path / "page.html", names={"latent_2": ["mood", "skill"]}
    )
    text = Page(file.read_text(encoding="utf-8")).sections["graph"]
    assert "In latents_2, tied to nothing below (no loading over 0.3): skill." in text


def test_mixed_items_and_a_given_graph_are_said(tmp_path: Path) -> None:
    file = write_report(*blocks_fit(), tmp_path / "blocks.html")
    text = Page(file.read_text(encoding="utf-8")).sections["fitted"]
    assert "xj | a1 ~ Bernoulli(σ(b1,j + Σk W1,jk a1,k)), items 0 to 3" in text
    assert "xj | a1 ~ Normal(b1,j + Σk W1,jk a1,k, variance γj), items 4 to 6" in text
    assert "8 of 14 are free" in text


def test_a_users_program_gets_a_page_too(tmp_path: Path) -> None:
    file = write_report(*mixture_fit(), tmp_path / "mixture.html", image_shape=(2, 2))
    page = Page(file.read_text(encoding="utf-8"))
    assert "bernoulli_mixture: fit report" in page.sections["top"]
    for line in (
        "weightsparameterDirichlet3",
        "chanceparameterBeta3 × 4",
        "grouplatent, 3 valuesCategorical",
        "answersobservedBernoulli",
    ):
        assert line in page.sections["fitted"]
    assert "chance[2, 3]" in page.sections["estimates"]
    assert "group2" in page.sections["latents"]
    assert set(page.pictures) == {
        f"{mixture_fit()[0].trace.name} over iterations",
        "data simulated from the fit beside the data",
    }


def test_a_second_report_is_the_same_file(tmp_path: Path) -> None:
    first = write_report(encoder_fit(), None, tmp_path / "a.html").read_bytes()
    assert write_report(encoder_fit(), None, tmp_path / "a.html").read_bytes() == first


def test_bad_input_is_refused_before_a_file_is_written(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"image_shape must be \(height, width\) of 8 items, got \(5, 5\)"
    ):
        write_report(encoder_fit(), bernoulli_table(), tmp_path, image_shape=(5, 5))
    with pytest.raises(ValueError, match="'reads' is missing"):
        write_report(encoder_fit(), bernoulli_table().iloc[:, 1:], tmp_path)
    assert list(tmp_path.iterdir()) == []
