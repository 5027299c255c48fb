"""``ppl-models fit attributes`` and ``ppl-models causal``: from answers and a Q-matrix to a folder,
a page and a graph.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.command_line import run

from inference import Fit
from inference.causal import discover_attributes
from inference.cli import reading
from inference.report.results_folder import read_results
from ppl_models import (
    Blocks,
    Dag,
    Hierarchy,
    HigherOrder,
    Independent,
    LogNormal,
    Normal,
    Saturated,
)
from ppl_models.datasets import causal_attributes, mastery_test

pytestmark = pytest.mark.usefixtures("unpainted", "few_refits")

SKILLS = ["add", "carry", "borrow"]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("answers")
    design = mastery_test(12, 3, seed=1)
    items, _ = design.draw(400, seed=2, missing=0.02)
    names = [f"task {j}" for j in range(12)]
    pd.DataFrame(items.numpy(), columns=names).to_csv(folder / "answers.csv", index=False)
    turned = pd.DataFrame(design.model.q_matrix, columns=SKILLS, index=names).iloc[
        ::-1
    ]  # in another order than the answers
    turned.to_csv(folder / "q.csv", index_label="item")
    return folder / "answers.csv", folder / "q.csv"


def fitted(answers: tuple[Path, Path], out: Path, *options: object) -> Any:
    return run(
        "fit", "attributes", answers[0], "--q", answers[1], "--out", out, "--no-progress", *options
    )


def test_answers_and_a_q_matrix_to_a_folder_and_a_graph(
    answers: tuple[Path, Path], tmp_path: Path
) -> None:
    done = fitted(answers, tmp_path / "out", "--items", "dina")
    assert done.exit_code == 0, done.stderr
    loaded, frame, summary = read_results(tmp_path / "out")
    assert loaded.model.attribute_names == tuple(SKILLS)
    assert loaded.model.item_names == tuple(frame.columns) == tuple(f"task {j}" for j in range(12))
    assert (
        loaded.model.q_matrix == mastery_test(12, 3, seed=1).model.q_matrix
    )  # put into the order of the answers
    assert loaded.model.items == "dina"
    assert loaded.model.root == Saturated()
    assert summary["num_rows"] == 400
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "borrow" in page
    assert "task 11" in page

    done = run("causal", tmp_path / "out", "--draws", 50, "--seed", 3)
    assert done.exit_code == 0, done.stderr
    graph = json.loads((tmp_path / "out" / "graph.json").read_text(encoding="utf-8"))
    expected = discover_attributes(loaded, frame, num_draws=50, seed=3)
    assert graph["attributes"] == SKILLS
    assert graph["observed_rows"] == 400
    assert graph["num_rows"] == pytest.approx(expected.causal.num_rows)
    assert expected.causal.probabilities is not None
    assert np.allclose(graph["probabilities"]["adjacent"], expected.causal.probabilities.adjacent)
    assert len(graph["edges"]) == len(expected.causal.edges)
    assert " ".join(graph["verdict"]) in done.stdout
    assert (tmp_path / "out" / "causal.png").read_bytes().startswith(b"\x89PNG")
    assert "An arrow is a cause only if" in (tmp_path / "out" / "causal.html").read_text(
        encoding="utf-8"
    )


def test_a_given_distribution_is_not_searched_for_causes(
    answers: tuple[Path, Path], tmp_path: Path
) -> None:
    done = fitted(
        answers,
        tmp_path / "out",
        "--items",
        "dina",
        "--root",
        "dag:add>carry, carry>borrow",
        "--monotone",
    )
    assert done.exit_code == 0, done.stderr
    assert Fit.load(tmp_path / "out" / "fit").model.monotone
    assert Fit.load(tmp_path / "out" / "fit").model.root == Dag(
        (("add", "carry"), ("carry", "borrow"))
    )
    done = run("causal", tmp_path / "out")
    assert done.exit_code == 2
    assert (
        "would only repeat what that distribution assumes; fit again with --root saturated"
        in done.stderr
    )
    assert not (tmp_path / "out" / "graph.json").exists()


def test_a_q_matrix_that_tells_no_profiles_apart_gets_no_graph(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    chance = np.where(rng.random((200, 1)) < 0.5, 0.9, 0.2)
    pd.DataFrame((rng.random((200, 6)) < chance).astype(int)).to_csv(
        tmp_path / "a.csv", index=False
    )
    pd.DataFrame(np.ones((6, 2), dtype=int), columns=SKILLS[:2]).to_csv(
        tmp_path / "q.csv", index=False
    )
    done = fitted(
        (tmp_path / "a.csv", tmp_path / "q.csv"),
        tmp_path / "out",
        "--items",
        "dina",
        "--restarts",
        1,
    )
    assert done.exit_code == 0, done.stderr
    done = run("causal", tmp_path / "out", "--draws", 5)
    assert done.exit_code == 0, done.stderr
    assert "No graph is drawn" in done.stdout
    assert (
        json.loads((tmp_path / "out" / "graph.json").read_text(encoding="utf-8"))["determined"]
        is False
    )
    assert not (tmp_path / "out" / "causal.png").exists()


def test_a_q_matrix_is_found(tmp_path: Path) -> None:
    """Failed before: a plain fit whose penalty was left open asked the attribute model for graphs
    that it does not have.
    """
    design = causal_attributes("chain")
    items, _ = design.draw(600, seed=1)
    pd.DataFrame(items.numpy()).to_csv(tmp_path / "a.csv", index=False)
    options = (
        "--attributes",
        5,
        "--response",
        "normal",
        "--out",
        tmp_path / "out",
        "--no-progress",
    )
    done = run("fit", "attributes", tmp_path / "a.csv", *options)
    assert done.exit_code == 0, done.stderr
    found = np.array(Fit.load(tmp_path / "out" / "fit").model.q_matrix)
    truth = np.array(design.model.q_matrix)
    assert sorted(map(tuple, found.T)) == sorted(map(tuple, truth.T))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("saturated", Saturated()), ("independent", Independent()), ("higher-order", HigherOrder()),
        ("hierarchy:add>carry,carry>borrow", Hierarchy((("add", "carry"), ("carry", "borrow")))),
    ],
)  # fmt: skip
def test_distributions_by_name(text: str, expected: object) -> None:
    from inference.cli.families import root_of

    assert root_of(text) == expected


def test_blocks() -> None:
    from inference.cli.families import rules_of
    from inference.cli.reading import Call, family_said

    answers = pd.DataFrame(np.ones((4, 3)), columns=["a", "b", "c"])
    found = family_said(Call(response="normal:2,lognormal:1"), answers)[1]
    assert found == Blocks((Normal(), 2), (LogNormal(), 1))
    assert rules_of("dina:2,saturated:1", 3) == ["dina", "dina", "saturated"]
    assert rules_of("dino", 3) == "dino"


WRONG = {
    "neither": ((), "--q FILE (a Q-matrix) or --attributes K"),
    "monotone without a matrix": (
        ("--attributes", 2, "--monotone"),
        "monotone=True needs the q_matrix",
    ),
    "both": (("--q", "Q", "--attributes", 2), "one of the two"),
    "no such rule": (
        ("--q", "Q", "--items", "dine"),
        "the rule of an item must be one of 'additive'",
    ),
    "rules of other items": (
        ("--q", "Q", "--items", "dina:3,dino:2"),
        "hold 5 items, and the answers have 12",
    ),
    "rules without numbers": (
        ("--q", "Q", "--items", "dina:x"),
        "--items: blocks are written NAME:NUMBER",
    ),
    "no such distribution": (
        ("--q", "Q", "--root", "free"),
        "--root: one of saturated, independent",
    ),
    "half a pair": (("--q", "Q", "--root", "dag:add>"), "--root: one of"),
    "no such attribute": (
        ("--q", "Q", "--root", "dag:add>multiply"),
        "attribute 'multiply' is not among the 3",
    ),
    "a cycle": (("--q", "Q", "--root", "hierarchy:add>carry,carry>add"), "is a cycle"),
    "no such response": (("--q", "Q", "--response", "binary"), "--response: bernoulli, poisson"),
    "counts": (("--q", "Q", "--response", "lognormal"), "LogNormal items are positive, found 0"),
    "an empty row": (("--q", "EMPTY"), "item 'task 3' asks for no attribute"),
    "an empty column": (("--q", "UNASKED"), "attribute 'borrow' is asked for by no item"),
    "a two": (("--q", "TWO"), "of 0 and 1, got 2"),
    "other items": (("--q", "OTHER"), "items 'task 5' are not among the rows of"),
    "other names": (
        ("--q", "NAMES"),
        (
            "items 'exercise 0', 'exercise 1', 'exercise 2', 'exercise 3' and 8 more are not among"
            " the columns of the answers"
        ),
    ),
    "on its side": (
        ("--q", "SIDE"),
        (
            "has 3 rows, and the answers have 12 items; one row an item was expected; it seems to"
            " lie on its side"
        ),
    ),
    "short": (
        ("--q", "SHORT"),
        "has 11 rows, and the answers have 12 items; one row an item was expected",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_said_in_one_line(
    answers: tuple[Path, Path], tmp_path: Path, name: str
) -> None:
    matrix = pd.read_csv(answers[1], index_col="item")
    empty, unasked, two = matrix.copy(), matrix.copy(), matrix.copy()
    empty.loc["task 3"] = 0
    unasked["borrow"], unasked["add"] = 0, 1
    two.iloc[2, 1] = 2
    files = {
        "EMPTY": empty, "UNASKED": unasked, "TWO": two, "OTHER": matrix.drop(index="task 5"),
        "NAMES": matrix.set_axis([f"exercise {j}" for j in range(12)]),
    }  # fmt: skip
    words = {"Q": answers[1]}
    for key, frame in files.items():
        words[key] = tmp_path / f"{key}.csv"
        frame.to_csv(words[key], index_label="item")
    for key, frame in {"SIDE": matrix.T, "SHORT": matrix.iloc[:-1]}.items():
        words[key] = tmp_path / f"{key}.csv"
        frame.to_csv(words[key], index=False)
    options, expected = WRONG[name]
    done = run(
        "fit",
        "attributes",
        answers[0],
        *(words.get(str(word), word) for word in options),
        "--out",
        tmp_path / "out",
        "--no-progress",
    )
    assert done.exit_code == 2, done.output
    assert len(done.stderr.strip().splitlines()) == 1
    assert expected in done.stderr
    assert not (tmp_path / "out").exists()


def test_groups(answers: tuple[Path, Path], tmp_path: Path) -> None:
    table = pd.read_csv(answers[0])
    table.insert(1, "school", np.where(np.arange(len(table)) % 2, "north", "south"))
    table.to_csv(tmp_path / "answers.csv", index=False)
    both = (tmp_path / "answers.csv", answers[1])
    done = fitted(
        both,
        tmp_path / "out",
        "--items",
        "dina",
        "--root",
        "independent",
        "--groups",
        "school",
        "--free",
        "task 3",
    )
    assert done.exit_code == 0, done.stderr
    loaded, _, _ = read_results(tmp_path / "out")
    assert loaded.model.groups == ("north", "south")
    assert loaded.model.free_items == (3,)
    assert "Attributes by group" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    done = run("causal", tmp_path / "out")
    assert done.exit_code == 2
    assert "a fit of several groups" in done.stderr
    table.assign(school=table["school"].mask(np.arange(len(table)) == 7)).to_csv(
        tmp_path / "gaps.csv", index=False
    )
    gaps = (tmp_path / "gaps.csv", answers[1])
    done = fitted(gaps, tmp_path / "no", "--items", "dina", "--groups", "school")
    assert done.exit_code == 2
    assert "row 7 has no group; drop it, or give it one of north, south" in done.stderr
    for options, words in (
        (("--groups", "class"), "has no column 'class'; its columns are 'task 0', 'school'"),
        (("--free", "task 3"), "needs --groups COLUMN"),
        (("--groups", "school", "--free", "task 99"), "'task 99' is not among the 12 items"),
    ):
        refused = fitted(both, tmp_path / "no", *options)
        assert refused.exit_code == 2
        assert words in refused.stderr, refused.stderr


def test_answers_in_an_order_and_attributes_that_depend_on_covariates(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    q_matrix = pd.DataFrame(
        [[1, 0], [0, 1]] * 3, index=[f"q{j}" for j in range(6)], columns=["add", "borrow"]
    )
    q_matrix.to_csv(tmp_path / "q.csv", index_label="item")
    age = rng.normal(40.0, 10.0, 300).round()
    has = rng.random((300, 2)) < 1 / (1 + np.exp(4.0 - 0.1 * age[:, None]))
    answers = pd.DataFrame(
        np.digitize(
            3.0 * (has @ q_matrix.to_numpy().T) - 1.5 + rng.logistic(size=(300, 6)), [-1.0, 1.0]
        ),
        columns=q_matrix.index,
    )
    words = answers.apply(lambda column: column.map({0: "no", 1: "partly", 2: "yes"})).assign(
        age=age
    )
    words.loc[7, "age"] = np.nan
    words.to_csv(tmp_path / "answers.csv", index=False)
    asked = [
        "fit",
        "attributes",
        tmp_path / "answers.csv",
        "--q",
        tmp_path / "q.csv",
        "--response",
        "ordinal",
        "--order",
        "no,partly,yes",
        "--covariates",
        "age",
        "--no-progress",
    ]
    refused = run(*asked, "--out", tmp_path / "refused")
    assert "covariate 'age' is missing in row 7 (1 of 300 rows" in refused.stderr
    done = run(*asked, "--covariates-missing", "drop", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    assert "1 row of 300 that lack a covariate is left out." in done.stdout
    found = read_results(tmp_path / "out")[0]
    assert found.model.root == Independent()
    assert found.category_names["q0"] == ("no", "partly", "yes")
    assert bool(
        (
            (found.params["coefficients"][:, 1] > 0.04) & (found.params["coefficients"][:, 1] < 0.2)
        ).all()
    )
    again = run(
        "predict", tmp_path / "out", tmp_path / "answers.csv", "--out", tmp_path / "new.csv"
    )
    assert "covariate 'age' is missing in row 7" in again.stderr
    assert (
        "root=Independent() was expected"
        in run(
            *asked,
            "--root",
            "saturated",
            "--covariates-missing",
            "drop",
            "--out",
            tmp_path / "other",
        ).stderr
    )
    assert (
        "--covariates and --groups were expected one at a time"
        in run(*asked, "--groups", "age", "--out", tmp_path / "other").stderr
    )


def test_columns_of_labels_keep_their_names(monkeypatch: Any) -> None:
    frame = pd.DataFrame({"add": ["1", "0", None], "multiply": ["0", None, "1"]})
    monkeypatch.setattr(reading, "read_mixed", lambda call, *columns: frame)
    call = SimpleNamespace(labels=["multiply", "add"])
    found = reading.read_labels(call)  # type: ignore[arg-type]
    expected = pd.DataFrame({"multiply": [0.0, np.nan, 1.0], "add": [1.0, 0.0, np.nan]})
    pd.testing.assert_frame_equal(found, expected)
