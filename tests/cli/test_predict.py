"""``ppl-models predict``: the same answers as the fit gives, whatever the order of the columns, for
tables and sequences.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.command_line import answers, run

from inference import EM, Fit, fit
from inference.programs.global_state import quiet
from inference.report.results_folder import write_results
from ppl_models import Bernoulli, Mixture, OptionsHMM

pytestmark = pytest.mark.usefixtures("unpainted", "few_refits")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a table, of an array, and of sequences."""
    root, data, rng = tmp_path_factory.mktemp("fits"), answers(), np.random.default_rng(1)
    steps = pd.DataFrame(
        {
            "sequence": np.repeat(["b", "a"], 15),
            "time": np.tile(np.arange(15), 2),
            "state": rng.integers(0, 3, 30),
            "action": rng.integers(0, 2, 30),
        }
    )
    steps.to_csv(root / "steps.csv", index=False)
    model = Mixture(2, component=Bernoulli(), num_items=6)
    with pytest.MonkeyPatch.context() as patch, quiet():
        patch.setattr(
            "inference.report.fit.write_report", lambda fit, data, path, **_: Path(path).touch()
        )
        write_results(fit(model, data, EM(), num_restarts=2), data, root / "classes")
        write_results(
            fit(model, data.to_numpy(), EM(), num_restarts=2), data.to_numpy(), root / "array"
        )
        write_results(
            fit(OptionsHMM(3, 2, 2), steps, EM(max_iterations=3)), steps, root / "options"
        )
    return root


def test_a_table_in_another_order_with_texts_beside(folders, tmp_path):
    new = answers(20, seed=5)
    shuffled = new[new.columns[::-1]].assign(who=[f"person {i}" for i in range(20)])
    shuffled.to_csv(tmp_path / "new.csv", index=False)
    done = run(
        "predict",
        folders / "classes",
        tmp_path / "new.csv",
        "--out",
        tmp_path / "answers.csv",
        "--keep",
        "who",
    )
    assert done.exit_code == 0, done.stderr
    found, known = pd.read_csv(tmp_path / "answers.csv"), Fit.load(folders / "classes" / "fit")
    assert found["who"].tolist() == shuffled["who"].tolist()
    np.testing.assert_array_equal(found["assignments"], known.predict(new))
    np.testing.assert_allclose(
        found[["P(assignments=0)", "P(assignments=1)"]], known.predict_proba(new)
    )
    np.testing.assert_allclose(found["log_likelihood"], known.log_likelihood_rows(new))
    again = run(
        "predict", folders / "classes", tmp_path / "new.csv", "--out", tmp_path / "answers.csv"
    )
    assert again.exit_code == 2
    assert (
        "answers.csv exists: name another file, or allow to overwrite (--overwrite)" in again.stderr
    )


@pytest.mark.parametrize("folder", ["classes", "array"])
@pytest.mark.parametrize("ending", ["npy", "csv"])
def test_columns_without_names_are_taken_by_their_places(folders, tmp_path, folder, ending):
    new, file = answers(20, seed=5), tmp_path / f"new.{ending}"
    np.save(file, new.to_numpy()) if ending == "npy" else new.to_csv(file, index=False)
    done = run("predict", folders / folder, file, "--out", tmp_path / "answers.csv")
    assert done.exit_code == 0, done.stderr
    expected = Fit.load(folders / folder / "fit").log_likelihood_rows(new.to_numpy())
    np.testing.assert_allclose(pd.read_csv(tmp_path / "answers.csv")["log_likelihood"], expected)


def test_sequences_get_a_line_a_step(folders, tmp_path):
    steps = pd.read_csv(folders / "steps.csv").sample(frac=1.0, random_state=0)
    steps.to_csv(tmp_path / "shuffled.csv", index=False)
    done = run(
        "predict",
        folders / "options",
        tmp_path / "shuffled.csv",
        "--out",
        tmp_path / "answers.csv",
        "--keep",
        "action",
    )
    assert done.exit_code == 0, done.stderr
    assert "30 time points" in done.stdout
    found, known = pd.read_csv(tmp_path / "answers.csv"), Fit.load(folders / "options" / "fit")
    assert (
        found[["sequence", "time"]].to_numpy().tolist()
        == steps[["sequence", "time"]].to_numpy().tolist()
    )
    for name, own in steps.groupby("sequence"):
        likelihood = float(known.log_likelihood_rows(own))
        np.testing.assert_allclose(
            found.loc[found["sequence"] == name, "log_likelihood_of_sequence"], likelihood
        )
        path = known.predict(own)[0]
        assert (
            found[found["sequence"] == name].sort_values("time")["options"].tolist()
            == path.tolist()
        )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("none", "new.csv"), "there is none"),
        (("classes", "fewer.csv"), "no column is named 'calm'"),
        (("classes", "narrow.npy"), "the 6 columns of the fit were expected, got 2"),
        (
            ("classes", "twos.csv"),
            "column 'calm': Bernoulli items take the values 0 and 1, found 2",
        ),
        (("classes", "new.csv", "--keep", "who"), "--keep: "),
        (
            ("classes", "narrow.npy", "--keep", "who"),
            "--keep: columns can be copied from csv and tsv files",
        ),
        (("options", "new.csv"), "data: "),
    ],
)
def test_mistakes_in_one_line(folders, tmp_path, words, said):
    new = answers(10, seed=5)
    new.to_csv(tmp_path / "new.csv", index=False)
    new.drop(columns="calm").to_csv(tmp_path / "fewer.csv", index=False)
    new.assign(calm=2).to_csv(tmp_path / "twos.csv", index=False)
    np.save(tmp_path / "narrow.npy", np.ones((3, 2)))
    told = run(
        "predict",
        folders / words[0],
        tmp_path / words[1],
        "--out",
        tmp_path / "deep" / "answers.csv",
        *words[2:],
    )
    assert told.exit_code == 2, told.output
    assert said in told.stderr
    assert len(told.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "deep" / "answers.csv").exists()
