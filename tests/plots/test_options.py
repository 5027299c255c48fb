"""Pictures of options show the numbers of the fit; the command line; alignment."""

from __future__ import annotations

import functools
import itertools
import re
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from papers.options import random_options
from support.fitted_examples import mixture_fit
from typer.testing import CliRunner

from inference import EM, Fit, fit
from inference.alignment import align
from inference.cli.main import app
from inference.plots import (
    plot_option_occupancy,
    plot_option_switches,
    plot_policies,
    plot_policy_tables,
)
from inference.report import write_report
from inference.structures.options.align import align_options, permute_options, policy_error
from ppl_models import ContinuousOptionsHMM, Network, OptionsHMM
from ppl_models.datasets import GridWorld, OptionSequences

pytestmark = pytest.mark.usefixtures("few_refits")
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))


@functools.cache
def case() -> tuple[GridWorld, OptionSequences, Fit]:
    world = GridWorld(rows=("A..B", "...."))
    drawn = world.demonstrations(12, 25, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = fit(OptionsHMM(8, 4, 2), drawn.data, EM(max_iterations=30), init="random")
    return world, drawn, result


def test_arrows_are_the_mean_moves() -> None:
    world, _, result = case()
    figure = plot_policies(result, world.cells, MOVES, goals=world.goals)
    for option, ax in enumerate(figure.axes):
        (quiver,) = [c for c in ax.collections if hasattr(c, "U")]
        expected = result.params["low"][:, option].numpy() @ np.array(MOVES)
        np.testing.assert_allclose(quiver.U, expected[:, 1])
        np.testing.assert_allclose(quiver.V, expected[:, 0])
        assert ax.yaxis_inverted()
    with pytest.raises(ValueError, match=r"cells must hold 8 pairs"):
        plot_policies(result, world.cells[:3], MOVES)
    with pytest.raises(ValueError, match=r"moves must hold 4 pairs"):
        plot_policies(result, world.cells, MOVES[:3])


def test_tables_of_policies_are_those_of_the_fit(tmp_path) -> None:
    _, drawn, result = case()
    shown = [image.get_array() for ax in plot_policy_tables(result).axes for image in ax.images]
    for option in range(2):
        np.testing.assert_allclose(shown[option], result.params["low"][:, option])
    generator = torch.Generator().manual_seed(0)
    data = {
        "state": torch.randn(6, 9, 2, generator=generator),
        "action": torch.randint(3, (6, 9), generator=generator),
    }
    quick = EM(max_iterations=2, tolerance=10.0, parameter_tolerance=100.0)
    linear = fit(ContinuousOptionsHMM(2, 3, 2), data, quick, init="random")
    shown = [image.get_array() for ax in plot_policy_tables(linear).axes for image in ax.images]
    np.testing.assert_allclose(shown[1][:2], linear.params["low_weights"][1].T)
    np.testing.assert_allclose(shown[1][2], linear.params["low_intercepts"][1])
    network = fit(ContinuousOptionsHMM(2, 3, 2, policy=Network(2)), data, quick, init="random")
    with pytest.raises(ValueError, match="hidden units between"):
        plot_policy_tables(network)
    for other, given, missing in ((result, drawn.data, 0), (linear, data, 0), (network, data, 1)):
        text = write_report(other, given, tmp_path / "report.html").read_text(encoding="utf-8")
        assert text.count("<h2>Policies</h2>") == text.count("<h2>Options over time</h2>") == 1
        assert "Loadings" not in text
        assert text.count("Not drawn: what every option does") == missing
        assert "time points of all sequences" in text


def test_occupancy_is_the_posterior() -> None:
    _, drawn, result = case()
    posterior = result.posterior_latents(drawn.data)["options"]
    for sequence, expected in ((3, posterior[3]), (None, posterior.mean(0))):
        ax = plot_option_occupancy(result, drawn.data, sequence, tasks=drawn.option)
        top = ax.collections[0].get_paths()[0].vertices
        heights = {x: y for x, y in top if y > 1e-12}
        for t in range(25):
            if float(expected[t, 0]) > 1e-9:
                assert any(abs(y - float(expected[t, 0])) < 1e-9 for x, y in top if x == t), t
        assert heights
        assert len(ax.images) == (sequence is not None)
    with pytest.raises(ValueError, match="sequence must lie in 0 to 11, got 12"):
        plot_option_occupancy(result, drawn.data, 12)


def test_switches_are_the_diagonal() -> None:
    _, _, result = case()
    image = plot_option_switches(result).images[0].get_array()
    np.testing.assert_allclose(image, result.params["high"].diagonal(dim1=1, dim2=2))


def test_only_models_with_options_are_drawn() -> None:
    other, _ = mixture_fit()
    for draw in (
        plot_option_switches,
        lambda f: plot_policies(f, (), ()),
        lambda f: plot_option_occupancy(f, {}),
    ):
        with pytest.raises(ValueError, match="a model of hidden options was expected"):
            draw(other)


@pytest.mark.parametrize("num_options", [3, 8])
def test_alignment_undoes_any_order(num_options: int) -> None:
    truth = random_options(4, 5, num_options, seed=0)
    chain = OptionsHMM(4, 5, num_options).chain()
    order = torch.randperm(num_options, generator=torch.Generator().manual_seed(1))
    aligned = align_options(permute_options(chain, truth, order), truth, chain)
    for name, value in truth.items():
        assert torch.equal(aligned.params[name], value)
    assert aligned.cost == 0
    with pytest.raises(ValueError, match="reference must hold low of shape"):
        align_options(truth, {"high": truth["high"]}, chain)


def test_a_fit_is_aligned_to_a_truth() -> None:
    world, _, result = case()
    truth, chain = world.truth(), result.model.chain()
    aligned = align(result, truth)
    errors = [
        policy_error(permute_options(chain, result.params, torch.tensor(p)), truth, chain)
        for p in itertools.permutations(range(2))
    ]
    assert abs(policy_error(aligned.params, truth, chain) - min(errors)) < 1e-12
    assert abs(aligned.cost - min(errors) ** 2) < 1e-9


# ---------------------------------------------------------------- command line


@pytest.fixture
def table(tmp_path):
    _, drawn, _ = case()
    rows, steps = drawn.data["state"].shape
    frame = pd.DataFrame(
        {
            "sequence": np.repeat([f"walk {i}" for i in range(rows)], steps),
            "time": np.tile(np.arange(steps), rows),
            "state": drawn.data["state"].ravel(),
            "action": drawn.data["action"].ravel().float(),
        }
    )
    frame.loc[7, "action"] = np.nan
    frame.to_csv(tmp_path / "walks.csv", index=False)
    return tmp_path / "walks.csv"


def test_the_command_line_fits_and_reports(table, tmp_path) -> None:
    out = tmp_path / "out"
    runner = CliRunner()
    arguments = [
        "fit",
        "options-hmm",
        str(table),
        "--options",
        "2",
        "--out",
        str(out),
        "--random",
        "--restarts",
        "2",
        "--no-progress",
    ]
    done = runner.invoke(app, arguments)
    assert done.exit_code == 0, done.output
    result = Fit.load(out / "fit")
    assert (result.model.num_states, result.model.num_actions, result.model.num_options) == (
        8,
        4,
        2,
    )
    written = pd.read_csv(out / "options.csv")
    assert len(written) == 300
    np.testing.assert_allclose(
        written[["probability_0", "probability_1"]].sum(axis=1), 1, atol=1e-5
    )
    assert set(written["option"]) <= {0, 1}
    again = runner.invoke(app, ["report", str(out)])
    assert again.exit_code == 0, again.output
    checked = runner.invoke(app, ["check", str(out)])
    assert checked.exit_code == 0, checked.output
    assert "identified" in checked.output
    assert "What to do next" in (out / "report.html").read_text(encoding="utf-8")


def test_columns_of_other_names_and_of_texts_are_taken(table, tmp_path, monkeypatch) -> None:
    """Failed before: the file had to be written anew under the names of the library, and in its
    codes.
    """

    def arrived(model, frame, *_):
        raise ValueError(f"{model.num_actions} actions in columns {', '.join(frame.columns)}")

    monkeypatch.setattr(sys.modules["inference.cli.families"], "run", arrived)
    frame = pd.read_csv(table).rename(columns={"sequence": "episode", "time": "step"})
    frame["action"] = frame["action"].map({0: "up", 1: "down", 2: "left", 3: "right"})
    frame.assign(note="not looked at").to_csv(tmp_path / "named.csv", index=False)
    arguments = [
        "fit",
        "options-hmm",
        str(tmp_path / "named.csv"),
        "--options",
        "2",
        "--sequence",
        "episode",
        "--time",
        "step",
    ]
    done = CliRunner().invoke(
        app,
        [
            *arguments,
            "--out",
            str(tmp_path / "out"),
            "--random",
            "--restarts",
            "1",
            "--no-progress",
        ],
    )
    assert "4 actions in columns sequence, time, action, state" in done.output
    assert "The actions are numbered: down is 0, left is 1, right is 2, up is 3." in done.output


def test_steps_in_the_order_of_the_file_and_states_by_their_words(table, tmp_path) -> None:
    """Failed before: a file without a column of times was refused, and options.csv held numbers
    where the file has words.
    """
    frame = pd.read_csv(table).sort_values(["sequence", "time"], kind="stable").drop(columns="time")
    frame["action"] = frame["action"].map({0: "up", 1: "down", 2: "left", 3: "right"})
    frame.to_csv(tmp_path / "walks.csv", index=False)
    out = tmp_path / "out"
    done = CliRunner().invoke(
        app,
        [
            "fit",
            "options-hmm",
            str(tmp_path / "walks.csv"),
            "--options",
            "2",
            "--restarts",
            "1",
            "--random",
            "--out",
            str(out),
            "--no-progress",
        ],
    )
    assert done.exit_code == 0, done.output
    assert "--time names a column that counts them" in done.output
    path = pd.read_csv(out / "options.csv")
    assert list(path.columns[:5]) == ["sequence", "time", "state", "action", "option"]
    assert path["action"].tolist() == frame["action"].tolist()
    assert path["state"].tolist() == frame["state"].tolist()
    page = (out / "report.html").read_text(encoding="utf-8")
    assert re.search(
        r"low\[state \d+, option 0, up\]", page
    )  # actions by their words, states, which are numbers in the file, by numbers
    assert (out / "posterior.nc").exists()
    assert CliRunner().invoke(app, ["report", str(out)]).exit_code == 0
    assert re.search(
        r"low\[state \d+, option 0, up\]", (out / "report.html").read_text(encoding="utf-8")
    )
    told = CliRunner().invoke(
        app,
        ["predict", str(out), str(tmp_path / "walks.csv"), "--out", str(tmp_path / "again.csv")],
    )
    assert told.exit_code == 0, told.output


def test_policies_under_the_words_of_states_and_actions() -> None:
    found = case()[2]
    words = {"state": [f"room {s}" for s in range(8)], "action": ["up", "down", "left", "right"]}
    ax = plot_policy_tables(found, words).axes[0]
    assert [label.get_text() for label in ax.get_xticklabels()] == words["action"]
    assert ax.get_yticklabels()[1].get_text() == "room 1"
    assert plot_option_switches(found, names=words).get_yticklabels()[2].get_text() == "room 2"
    with pytest.raises(ValueError, match="must hold 4 names, got 1"):
        plot_policy_tables(found, {"action": ["up"]})


def drives(num_rows: int = 12, num_steps: int = 25) -> pd.DataFrame:
    """Actions that follow x while one option is on and its opposite while the other is."""
    generator = np.random.default_rng(0)
    parts = []
    for n in range(num_rows):
        x, speed = generator.normal(size=(2, num_steps))
        option = (np.arange(num_steps) // 9 + n) % 2
        action = ((x > 0) ^ (option == 1)).astype(float)
        parts.append(
            pd.DataFrame(
                {
                    "sequence": f"drive {n}",
                    "time": np.arange(num_steps),
                    "x": x,
                    "speed": speed,
                    "action": action,
                }
            )
        )
    frame = pd.concat(parts, ignore_index=True)
    frame["note"] = "not looked at"
    frame.loc[5, "action"] = np.nan
    return frame


@pytest.mark.parametrize("network", [(), ("--network", "3")])
@pytest.mark.slow
def test_the_command_line_fits_continuous_states(tmp_path, network) -> None:
    drives().sample(frac=1.0, random_state=0).to_csv(tmp_path / "drives.csv", index=False)
    out, runner = tmp_path / "out", CliRunner()
    arguments = [
        "fit",
        "options-hmm",
        str(tmp_path / "drives.csv"),
        "--options",
        "2",
        "--features",
        "x, speed",
        "--out",
        str(out),
    ]
    done = runner.invoke(app, [*arguments, "--restarts", "2", "--no-progress", *network])
    assert done.exit_code == 0, done.output
    result = Fit.load(out / "fit")
    assert (result.model.num_features, result.model.num_actions, result.model.num_options) == (
        2,
        2,
        2,
    )
    assert tuple(result.item_names) == ("x", "speed", "action")
    written = pd.read_csv(out / "options.csv")
    assert len(written) == 300
    np.testing.assert_allclose(
        written[["probability_0", "probability_1"]].sum(axis=1), 1, atol=1e-5
    )
    if not network:  # both options are found: the path of most steps is the one that made them
        truth = (written["time"] // 9 + written["sequence"].str.split().str[1].astype(int)) % 2
        assert max((written["option"] == truth).mean(), (written["option"] != truth).mean()) > 0.8
    assert runner.invoke(app, ["report", str(out)]).exit_code == 0


@pytest.mark.parametrize(
    ("change", "more", "message"),
    [
        (
            lambda f: f.drop(columns="speed"),
            (),
            (
                "no column is named 'speed'; --features says which column is meant; the columns are"
                " sequence, time, x, action, note"
            ),
        ),
        (
            lambda f: f.drop(columns="time"),
            ("--time", "step"),
            "no column is named 'step'; --time says which",
        ),
        (lambda f: f.drop(index=3), (), "sequence 'drive 0' goes from 2 to 4"),
        (
            lambda f: f.assign(x=f["x"].mask(f.index == 4)),
            (),
            "data['state']: missing at sequence 0, step 4, column 0",
        ),
        (lambda f: f.assign(x="left"), (), "column 'x': numbers were expected"),
        (
            lambda f: f.assign(action=0.5),
            (),
            "data['action']: 0 to 1, or -1 where missing, was expected, got 0.5",
        ),
        (lambda f: f, ("--termination",), "--termination is for a state that is one whole number"),
        (lambda f: f, ("--states", "3"), "--states is for a state"),
        (lambda f: f, ("--features", "x,x"), "names of different columns of the state"),
        (lambda f: f, ("--features", "x,action"), "names of different columns of the state"),
    ],
)
def test_bad_files_of_continuous_states_are_one_line(tmp_path, change, more, message: str) -> None:
    change(drives(2)).to_csv(tmp_path / "bad.csv", index=False)
    arguments = [
        "fit",
        "options-hmm",
        str(tmp_path / "bad.csv"),
        "--options",
        "2",
        "--out",
        str(tmp_path / "out"),
        "--features",
        "x,speed",
    ]
    done = CliRunner().invoke(app, [*arguments, *more])
    assert done.exit_code == 2, done.output
    assert message in done.output
    assert not (tmp_path / "out").exists()


def test_a_network_needs_the_columns_of_a_continuous_state(table, tmp_path) -> None:
    done = CliRunner().invoke(
        app,
        [
            "fit",
            "options-hmm",
            str(table),
            "--options",
            "2",
            "--network",
            "3",
            "--out",
            str(tmp_path / "out"),
        ],
    )
    assert done.exit_code == 2
    assert "give its columns with --features" in done.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "sequence,time,state\n1,0,0\n",
            (
                "no column is named 'action'; --action says which column is meant; the columns are"
                " sequence, time, state"
            ),
        ),
        ("sequence,time,state,action\n1,0,0,0\n1,2,0,0\n", "sequence '1' goes from 0 to 2"),
        (
            "sequence,time,state,action\n1,0,,0\n1,1,0,0\n",
            "missing or negative in sequence '1' at time 0",
        ),
        (
            "sequence,time,state,action\n1,0,x,0\n1,1,1,0\n",
            "column 'state' holds numbers, and 'x' in row 0",
        ),
        ("", "the file is empty"),
    ],
)
def test_bad_files_are_one_line(tmp_path, text: str, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text, encoding="utf-8")
    done = CliRunner().invoke(
        app,
        [
            "fit",
            "options-hmm",
            str(path),
            "--options",
            "2",
            "--out",
            str(tmp_path / "out"),
            "--no-progress",
        ],
    )
    assert done.exit_code == 2, done.output
    assert message in done.output
    assert not (tmp_path / "out").exists()
