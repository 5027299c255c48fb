"""Pictures of hidden Markov models draw what was found, and refuse what does not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from inference import EM, Fit, fit
from inference.inspection import viterbi_states
from inference.plots import plot_decoded_path, plot_dwell_times, plot_transitions
from inference.plots.overview import plot_fit
from ppl_models import HiddenMarkov, Mixture, Normal

LEFT_RIGHT = ((True, True), (False, True))


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Two sequences, the first 20 steps low and the next 25 high, with a gap in time."""
    generator = np.random.default_rng(0)
    level = np.repeat([0.0, 5.0], [20, 25])
    parts = [
        pd.DataFrame(
            {
                "sequence": name,
                "time": np.arange(45),
                "height": level + generator.normal(size=45),
                "$x": generator.normal(size=45),
            }
        )
        for name in "ab"
    ]
    return pd.concat([parts[0].drop(index=30), parts[1]], ignore_index=True)


@pytest.fixture(scope="module")
def result(frame: pd.DataFrame) -> Fit:
    return fit(
        HiddenMarkov(2, Normal(), 2, (1, 0), LEFT_RIGHT),
        frame,
        EM(tolerance=1e-5, parameter_tolerance=1e-3),
    )


def test_pictures_hold_what_was_found(result: Fit, frame: pd.DataFrame, tmp_path: Path) -> None:
    names = {"state": ["before <b>", "after"]}
    ax = plot_transitions(result, names)
    texts = [text.get_text() for text in ax.texts]
    assert texts == [
        f"{float(result.params['transitions'][0, 0]):.2f}",
        f"{float(result.params['transitions'][0, 1]):.2f}",
        "–",
        "1.00",
    ]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["before <b>", "after"]
    legend = plot_dwell_times(result, names).get_legend()
    assert legend is not None
    assert "never left" in legend.get_texts()[1].get_text()
    figure = plot_decoded_path(result, frame, 0, names=names)
    assert [ax.get_ylabel() for ax in figure.axes] == ["height", r"\$x", "P(state)"]
    visits = [len(of_state.get_paths()) for of_state in figure.axes[0].collections]
    assert visits == [1, 1]  # one visit to each state
    assert viterbi_states(result, frame).state[0].tolist() == [0] * 20 + [1] * 25
    figure.savefig(tmp_path / "path.png")
    assert len(plot_decoded_path(result, frame, 1, ["height"], first=10, max_steps=5).axes) == 2
    assert plot_fit(result).axes
    assert len(plot_fit(result, frame).axes) == 3


def test_no_word_of_a_picture_is_cut(result: Fit, frame: pd.DataFrame) -> None:
    """Ticks of the low panels, drawn last, have longer texts than those of high ones."""
    figure = plot_decoded_path(result, frame)
    figure.draw_without_rendering()
    for ax in figure.axes:
        words = ax.get_tightbbox()
        assert words is not None
        assert words.x0 >= 0
        assert words.x1 <= figure.bbox.width
        assert words.y0 >= 0
        assert words.y1 <= figure.bbox.height


def test_what_cannot_be_drawn_is_named(result: Fit, frame: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match="sequence must lie in 0 to 1, got 2"):
        plot_decoded_path(result, frame, 2)
    with pytest.raises(ValueError, match="items of the fit, such as 'height'"):
        plot_decoded_path(result, frame, items=["width"])
    with pytest.raises(ValueError, match="first must lie"):
        plot_decoded_path(result, frame, first=45)
    other = fit(Mixture(1, Normal(), 2), frame[["height", "$x"]])
    with pytest.raises(
        ValueError, match="chain_times: a fit of a hidden Markov model was expected"
    ):
        plot_transitions(other)


def test_a_report_tells_states_moves_and_residuals(
    result: Fit, frame: pd.DataFrame, tmp_path: Path
) -> None:
    names = {"state": ["before <b>", "after"]}
    text = result.report(tmp_path / "with.html", frame, names=names).read_text(encoding="utf-8")
    for words in (
        "States and moves",
        "before &lt;b&gt;",
        "never left",
        "Decoded path",
        "Pseudo-residuals",
        "time points of all sequences",
        "The first state is given",
    ):
        assert words in text, words
    assert "left out" not in text
    assert "<b>" not in text
    bare = result.report(tmp_path / "without.html").read_text(encoding="utf-8")
    assert "States and moves" in bare
    assert "Needs the data" in bare
