"""``ppl-models compare``: folders of fits side by side, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.command_line import answers, run

from inference import EM, Fit, Laplace, fit
from inference.report.results_folder import write_results
from ppl_models import Bernoulli, DeepDiscreteEncoder, Mixture, NoisyOr

GRAPH = ((1, 0), (1, 0), (1, 0), (0, 1), (0, 1), (0, 1))
pytestmark = [
    pytest.mark.usefixtures("unpainted", "few_refits"),
    pytest.mark.filterwarnings(
        "ignore::inference.BoundWarning", "ignore::inference.ConvergenceWarning"
    ),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> tuple[Path, Path, Path]:
    root, data = tmp_path_factory.mktemp("fits"), answers()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "inference.report.fit.write_report", lambda fit, data, path, **_: Path(path).touch()
        )
        write_results(
            fit(DeepDiscreteEncoder(6, (2,), graphs=(GRAPH,), bound=15.0), data, Laplace(200)),
            data,
            root / "attributes",
        )
        write_results(
            fit(Mixture(1, component=Bernoulli(), num_items=6), data, EM()),
            data,
            root / "one class",
        )
        write_results(
            fit(NoisyOr(6, 2), data), data, root / "network"
        )  # an engine with a bound, and the likelihood too
        fewer = data.iloc[:100]
        write_results(
            fit(Mixture(1, component=Bernoulli(), num_items=6), fewer, EM()), fewer, root / "fewer"
        )
    return root / "attributes", root / "one class", root / "fewer"


def test_folders_are_ranked_on_one_page(folders, tmp_path):
    attributes, one_class, _ = folders
    network = one_class.parent / "network"
    answers(60, seed=1).to_csv(tmp_path / "new.csv", index=False)
    result = run(
        "compare",
        one_class,
        network,
        attributes,
        "--out",
        tmp_path / "out",
        "--folds",
        4,
        "--test",
        tmp_path / "new.csv",
    )
    assert result.exit_code == 0, result.stderr
    assert "predicts unseen rows best, " in result.stdout
    table = pd.read_csv(tmp_path / "out" / "comparison.csv", index_col=0)
    assert set(table.index[:2]) == {
        "attributes",
        "network",
    }  # one cause an item: the same distribution
    assert table["test_log_likelihood"].idxmin() == "one class"
    assert "different ways" in result.stderr
    assert "lower bounds" not in result.stderr
    assert set(table["likelihood"]) == {"marginal"}
    assert "one class" in (tmp_path / "out" / "comparison.html").read_text()
    again = run("compare", one_class, attributes, "--out", tmp_path / "out")
    assert again.exit_code == 2
    assert "--overwrite" in again.stderr


def test_new_sequences_are_read_as_those_of_the_fits(tmp_path):
    rng = np.random.default_rng(1)
    states = np.repeat(rng.integers(0, 2, 60), 5)
    steps = pd.DataFrame(
        {
            "who": np.repeat(range(30), 10),
            "step": np.tile(range(10), 30),
            "y": rng.normal(3.0 * states).round(3),
            "g": np.where(rng.random(300) < 0.2 + 0.6 * states, "yes", "no"),
        }
    )
    new = steps[200:].sample(frac=1, random_state=0)
    steps[:200].to_csv(tmp_path / "old.csv", index=False)
    new.to_csv(tmp_path / "new.csv", index=False)
    folders = [tmp_path / "one", tmp_path / "two"]
    for states_of, folder in enumerate(folders, 1):
        asked = ["--states", states_of, "--sequence", "who", "--time", "step", "--no-report"]
        done = run("fit", "hmm", tmp_path / "old.csv", *asked, "--out", folder)
        assert done.exit_code == 0, done.stderr
    asked = ["--out", tmp_path / "out", "--folds", 2, "--test", tmp_path / "new.csv"]
    done = run("compare", *folders, *asked)
    assert done.exit_code == 0, done.stderr
    table = pd.read_csv(tmp_path / "out" / "comparison.csv", index_col=0)
    named = new.rename(columns={"who": "sequence", "step": "time"})
    for folder in folders:
        expected = float(Fit.load(folder / "fit").log_likelihood_rows(named).sum())
        assert table.loc[folder.name, "test_log_likelihood"] == pytest.approx(expected)


def test_what_cannot_be_compared_is_refused_in_one_line(folders, tmp_path):
    attributes, one_class, fewer = folders
    for arguments, said in (
        ([attributes], "at least two folders"),
        ([attributes, attributes], "twice"),
        ([attributes, fewer], "same data"),
        ([attributes, tmp_path / "none"], "there is none"),
        ([attributes, one_class, "--test", tmp_path / "none.csv"], "none.csv"),
    ):
        result = run("compare", *arguments, "--out", tmp_path / "out")
        assert result.exit_code == 2, said
        assert said in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()
