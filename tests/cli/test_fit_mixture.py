"""``ppl-models fit mixture``: what columns are taken for, the folder it writes, and what it refuses
in one line.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.command_line import run

from inference import Fit
from inference.report.results_folder import read_results
from ppl_models import (
    Bernoulli,
    Blocks,
    Covariates,
    LogNormal,
    Mixture,
    MultivariateNormal,
    NegativeBinomial,
    Normal,
    Poisson,
)

pytestmark = pytest.mark.usefixtures("unpainted", "few_refits")


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two groups far apart; an id, a name, a year beside."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 80)
    frame = pd.DataFrame(
        {
            "id": range(1, 81),
            "name": [f"p{i}" for i in range(80)],
            "town": np.where(group, "Ulm", "Bonn"),
            "age": rng.normal(20 + 40 * group, 4).round(1),
            "visits": rng.poisson(1 + 8 * group),
            "smokes": (rng.random(80) < 0.2 + 0.6 * group).astype(int),
            "born": rng.integers(60, 90, 80),
        }
    )
    path = tmp_path_factory.mktemp("people") / "people.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(autouse=True)
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes seconds and has its own tests."""
    monkeypatch.setattr(
        "inference.report.fit.write_report", lambda fit, data, path, **_: Path(path).touch()
    )


def mixture(people: Path, out: Path, *more: object):
    return run("fit", "mixture", people, "--out", out, "--restarts", 2, "--no-progress", *more)


def test_columns_are_taken_as_they_look_and_rows_are_written(people, tmp_path):
    done = mixture(people, tmp_path, "--components", 2, "--columns", "age,visits,smokes,born")
    assert done.exit_code == 0, done.stderr
    assert "measurements: age, born; counts: visits; yes-no: smokes." in done.stdout
    assert {entry.name for entry in tmp_path.iterdir()} == {
        "fit",
        "posterior.nc",
        "posterior.csv",
        "report.html",
        "summary.json",
    }
    fit, frame = Fit.load(tmp_path / "fit"), pd.read_csv(people)
    assert fit.model == Mixture(
        2, Blocks((Normal(), 1), (Poisson(), 1), (Bernoulli(), 1), (Normal(), 1)), 4
    )
    assert fit.item_names == ("age", "visits", "smokes", "born")
    rows = pd.read_csv(tmp_path / "posterior.csv")
    assert rows["id"].tolist() == list(range(1, 81))
    used = frame[list(fit.item_names)]
    np.testing.assert_array_equal(rows["assignments"], fit.predict(used))
    np.testing.assert_allclose(rows["log_likelihood"], fit.log_likelihood_rows(used))
    assert rows["log_likelihood"].sum() == pytest.approx(
        json.loads((tmp_path / "summary.json").read_text())["log_likelihood"]
    )


@pytest.mark.parametrize(
    ("response", "columns", "component"),
    [
        (
            "age=lognormal,visits=negative-binomial",
            "age,visits,smokes",
            Blocks((LogNormal(), 1), (NegativeBinomial(), 1), (Bernoulli(), 1)),
        ),
        ("normal:1,poisson:1", "age,visits", Blocks((Normal(), 1), (Poisson(), 1))),
        ("normal", "age,visits", Normal()),
        ("multivariate-normal", "age,visits", MultivariateNormal()),
    ],
)
def test_the_distribution_asked_for(people, tmp_path, response, columns, component):
    done = mixture(
        people, tmp_path, "--components", 1, "--columns", columns, "--response", response
    )
    assert done.exit_code == 0, done.stderr
    assert Fit.load(tmp_path / "fit").model.component == component
    assert ("taken as follows" in done.stdout) == ("=" in response and "smokes" in columns)


def test_texts_are_categories_and_come_back_from_the_folder(people, tmp_path):
    done = mixture(
        people,
        tmp_path / "out",
        "--components",
        2,
        "--columns",
        "age,town,smokes",
        "--response",
        "smokes=categorical",
    )
    assert done.exit_code == 0, done.stderr
    assert "measurements: age; categories: town." in done.stdout
    fit, frame, _ = read_results(tmp_path / "out")
    assert fit.category_names == {"town": ("Bonn", "Ulm"), "smokes": ("0", "1")}
    assert frame["town"].tolist() == pd.read_csv(people)["town"].tolist()
    assert frame["smokes"].tolist() == pd.read_csv(people)["smokes"].tolist()  # numbers again
    found = run("predict", tmp_path / "out", people, "--out", tmp_path / "again.csv")
    assert found.exit_code == 0, found.stderr
    np.testing.assert_allclose(
        pd.read_csv(tmp_path / "again.csv"), pd.read_csv(tmp_path / "out" / "posterior.csv")
    )
    pd.read_csv(people).assign(town="Rom").to_csv(tmp_path / "new.csv", index=False)
    refused = run(
        "predict", tmp_path / "out", tmp_path / "new.csv", "--out", tmp_path / "new-answers.csv"
    )
    assert refused.exit_code == 2
    assert (
        "column 'town': level 'Rom' is unknown to the model, whose levels are 'Bonn', 'Ulm'"
        in refused.stderr
    )


def test_gaps_of_coded_categories_are_no_category(people, tmp_path):
    codes = pd.read_csv(people)[["smokes", "town"]].assign(smokes=lambda frame: frame.smokes + 1.0)
    codes.loc[::7, "smokes"] = np.nan  # 1.0, 2.0 and empty cells, as pandas writes them
    codes.to_csv(tmp_path / "codes.csv", index=False)
    done = mixture(
        tmp_path / "codes.csv",
        tmp_path / "out",
        "--components",
        1,
        "--response",
        "smokes=categorical",
    )
    assert done.exit_code == 0, done.stderr
    found = Fit.load(tmp_path / "out" / "fit")
    assert found.category_names["smokes"] == ("1", "2")
    shares = [codes[name].value_counts() for name in codes]
    expected = sum((count * np.log(count / count.sum())).sum() for count in shares)
    assert found.log_likelihood == pytest.approx(expected, abs=1e-3)


def test_the_number_with_the_smallest_bic_is_taken(people, tmp_path):
    done = mixture(people, tmp_path, "--choose", "1..3", "--columns", "age,visits,smokes")
    assert done.exit_code == 0, done.stderr
    sizes = pd.read_csv(tmp_path / "sizes.csv")
    assert (
        sizes["components"][sizes["bic"].idxmin()]
        == Fit.load(tmp_path / "fit").model.num_components
        == 2
    )
    assert "2 groups have the smallest BIC of 1 to 3" in done.stdout


def test_a_column_that_counts_the_rows_is_named(people, tmp_path):
    table = pd.read_csv(people).rename(columns={"id": "place"})
    table.to_csv(tmp_path / "places.csv", index=False)
    more = ("--components", 1, "--columns", "place,age")
    done = mixture(tmp_path / "places.csv", tmp_path / "out", *more)
    assert done.exit_code == 0
    assert (
        "warning: column 'place' counts the rows; it says nothing of groups, and --columns leaves"
        " it out" in done.stderr
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ("--components", 2),
            (
                "column 'name' holds 80 different texts, too many for categories: leave the"
                " column out, or name the rows by it (--id, or"
            ),
        ),
        ((), "--components K (a number of groups) or --choose FIRST..LAST"),
        (("--components", 2, "--choose", "1..2"), "one of the two"),
        (("--choose", "3..1"), "--choose: FIRST:LAST"),
        (("--choose", "1..2", "--checkpoint", "running"), "--checkpoint: one fit is kept in it"),
        (
            ("--components", 2, "--columns", "age,height"),
            "no column is named 'height'; the columns are 'id', 'name', 'town', 'age'",
        ),
        (("--components", 2, "--columns", ","), "--columns: names separated by commas"),
        (("--components", 2, "--columns", "age,age"), "one column was asked for twice, 'age'"),
        (
            ("--components", 2, "--columns", "age", "--response", "weibull"),
            ("multivariate-normal or multivariate-t or skew-normal, were expected, got 'weibull'"),
        ),
        (
            ("--components", 2, "--columns", "age", "--response", "age=weibull"),
            "--response: column 'age': one of bernoulli",
        ),
        (
            ("--components", 2, "--columns", "age", "--response", "size=normal"),
            "--response: 'size' is no column of the table; the columns used are age",
        ),
        (
            ("--components", 2, "--columns", "age", "--response", "age=normal,age=normal"),
            "column 'age' is named twice",
        ),
        (
            ("--components", 2, "--columns", "age,town", "--response", "town=normal"),
            "column 'town' holds texts, which measurements cannot be",
        ),
        (
            ("--components", 2, "--columns", "age,town", "--response", "normal"),
            "column 'town', row 0 (line 2): a number was expected",
        ),
        (
            ("--components", 2, "--columns", "age", "--response", "=normal"),
            "'=normal' should read COLUMN=FAMILY",
        ),
        (
            ("--components", 2, "--columns", "age", "--response", "poisson"),
            "column 'age': Poisson items are whole counts",
        ),
        (
            ("--components", 99, "--columns", "age"),
            "at least num_components = 99 rows were expected, got 80",
        ),
    ],
)
def test_mistakes_in_one_line(people, tmp_path, options, words):
    told = mixture(people, tmp_path / "out", *options)
    assert told.exit_code == 2
    assert words in told.stderr
    assert len(told.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_verbose_says_what_is_done_and_leaves_no_handler_behind(people, tmp_path):
    import logging

    done = mixture(people, tmp_path, "--components", 1, "--columns", "age", "--verbose")
    assert done.exit_code == 0
    for words in (
        "read ",
        "80 rows, 1 columns",
        "fitting 80 rows by EM(",
        "converged after",
        "writing the report",
    ):
        assert words in done.stderr
    assert not logging.getLogger("inference").handlers
    assert logging.getLogger("inference").level == logging.NOTSET


def test_groups_that_depend_on_covariates_come_back_from_the_folder(people, tmp_path):
    done = mixture(
        people,
        tmp_path / "out",
        "--components",
        2,
        "--columns",
        "age,visits",
        "--covariates",
        "born,town",
    )
    assert done.exit_code == 0, done.stderr
    fit, frame, _ = read_results(tmp_path / "out")
    assert fit.model.covariates == Covariates(("born", "town"), ((), ("Bonn", "Ulm")))
    assert fit.item_names == ("age", "visits", "born", "town")
    assert frame["town"].tolist() == pd.read_csv(people)["town"].tolist()
    again = run("predict", tmp_path / "out", people, "--out", tmp_path / "new.csv")
    assert again.exit_code == 0, again.stderr
    assert (
        pd.read_csv(tmp_path / "new.csv")["assignments"].tolist()
        == pd.read_csv(tmp_path / "out" / "posterior.csv")["assignments"].tolist()
    )
    gaps = pd.read_csv(people).assign(town=lambda own: own["town"].where(own.index != 1))
    gaps.to_csv(tmp_path / "gaps.csv", index=False)
    asked = ("--components", 1, "--columns", "age,visits", "--covariates", "town", "--restarts", 1)
    assert (
        "covariate 'town' is missing in row 1"
        in mixture(tmp_path / "gaps.csv", tmp_path / "refused", *asked).stderr
    )
    done = mixture(
        tmp_path / "gaps.csv", tmp_path / "dropped", *asked, "--covariates-missing", "drop"
    )
    assert f"1 row of {len(gaps)} that lack a covariate is left out." in done.stdout
    assert pd.read_csv(tmp_path / "dropped" / "posterior.csv")["id"].tolist() == [
        1,
        *range(3, len(gaps) + 1),
    ]
    twice = mixture(
        people,
        tmp_path / "other",
        "--components",
        2,
        "--columns",
        "age,visits",
        "--covariates",
        "age",
    )
    assert twice.exit_code != 0
    assert "--covariates: age cannot be among --columns too" in twice.stderr


def test_labels_name_the_groups_and_are_no_item(people, tmp_path):
    frame = pd.read_csv(people)
    frame["known"] = frame["town"].where(frame["id"] % 4 == 0)
    frame.to_csv(tmp_path / "some.csv", index=False)
    asked = ("--components", 2, "--columns", "age,visits,known", "--labels", "known")
    done = mixture(tmp_path / "some.csv", tmp_path / "out", *asked, "--label-error", 0.01)
    assert done.exit_code == 0, done.stderr
    found = Fit.load(tmp_path / "out" / "fit")
    assert found.item_names == ("age", "visits")
    assert found.label_names == {"assignments": ("Bonn", "Ulm")}
    assert "semi-supervised: 20 of 80 rows labelled, 0.01" in repr(found)
    held = frame["town"].where(frame["known"].isna())
    assert found.accuracy(frame[["age", "visits"]], held) > 0.9
    refused = mixture(
        people, tmp_path / "no", "--choose", "1..2", "--columns", "age", "--labels", "town"
    )
    assert "--labels name the groups, whose number --components says" in refused.stderr


def test_equal_parameters_are_named_by_axis_or_file(people, tmp_path):
    asked = ("--components", 2, "--columns", "age,visits", "--tied")
    done = mixture(people, tmp_path / "out", *asked, "predictors=0")
    assert done.exit_code == 0, done.stderr
    found = Fit.load(tmp_path / "out" / "fit").params["predictors"]
    assert found[0].tolist() == found[1].tolist()
    table = tmp_path / "tied.json"
    table.write_text('{"predictors": [[0, -1], [0, -1]]}')
    done = mixture(people, tmp_path / "by_file", *asked, table)
    assert done.exit_code == 0, done.stderr
    found = Fit.load(tmp_path / "by_file" / "fit").params["predictors"]
    assert found[0, 0] == found[1, 0]
    assert found[0, 1] != found[1, 1]
    for wrong in ("predictors", "predictors=all", tmp_path / "absent.json"):
        assert "--tied: NAME=AXIS" in mixture(people, tmp_path / "no", *asked, wrong).stderr
    refused = mixture(
        people, tmp_path / "no", "--choose", "1..2", "--columns", "age", *asked[-1:], "a=0"
    )
    assert "--tied is of one number of groups" in refused.stderr


def test_known_parameters_come_from_a_file(people, tmp_path):
    known = tmp_path / "known.json"
    known.write_text('{"weights": [0.5, 0.5]}')
    asked = ("--components", 2, "--columns", "age,visits", "--fixed", known)
    done = mixture(people, tmp_path / "out", *asked)
    assert done.exit_code == 0, done.stderr
    assert Fit.load(tmp_path / "out" / "fit").params["weights"].tolist() == [0.5, 0.5]
    table = tmp_path / "known.csv"
    table.write_text(",age,visits\nfirst,30,\n")
    asked_by_name = (*asked[:-1], f"predictors={table}")
    done = mixture(people, tmp_path / "by_name", *asked_by_name)
    assert done.exit_code == 0, done.stderr
    held = Fit.load(tmp_path / "by_name" / "fit").fixed["predictors"]
    assert held[0, 0] == 30.0
    assert int((~held.isnan()).sum()) == 1
    assert "site=file.csv" in mixture(people, tmp_path / "no", *asked[:-1], "=a.csv").stderr
    known.write_text('{"weights": [0.5, 0.6]}')
    assert "fixed: 'weights': shares" in mixture(people, tmp_path / "no", *asked).stderr
