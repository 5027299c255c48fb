"""What a user can get wrong, each said by name before any work."""

from __future__ import annotations

import importlib
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from support.answer_tables import ANSWERS

import ppl_models_command
from inference import EM, RowBlocks, fit
from inference.studies import run_jobs
from ppl_models import Bernoulli, Blocks, DeepDiscreteEncoder, LogNormal, Mixture, Normal, Poisson
from ppl_models.data.files import read_frame, read_table
from ppl_models.data.tables import ConstantColumnWarning

pytestmark = pytest.mark.filterwarnings(
    "ignore::inference.BoundWarning"
)  # noise says little of latents
METHOD = EM(tolerance=1e-6, parameter_tolerance=1e-2, max_iterations=60)


def changed(row, column, value):
    table = ANSWERS.copy()
    table[row, column] = value
    return table


def strings():
    frame = pd.DataFrame(ANSWERS, columns=list("abcdef")).astype(object)
    frame.loc[3, "c"] = "yes"
    return frame


BAD_DATA = {
    "columns": (Bernoulli(), ANSWERS[:, :5], r"num_items = 6 columns.*got 5"),
    "dims": (Bernoulli(), ANSWERS[None], r"\(rows, items\).*\(1, 60, 6\)"),
    "complex": (Bernoulli(), ANSWERS + 1j, "complex128"),
    "no rows": (Bernoulli(), ANSWERS[:0], "at least one row"),
    "strings": (Bernoulli(), strings(), r"column 'c'.*'yes'"),
    "text": (Bernoulli(), "table.csv", "data: a table was expected, got.*'table.csv'"),
    "dates": (
        Bernoulli(),
        pd.DataFrame(ANSWERS).rename(columns=str).assign(**{"5": pd.Timestamp("2020-01-01")}),
        "column '5'.*datetime64",
    ),
    "unequal rows": (Bernoulli(), [[0, 1], [1]], "data: .*unequal length"),
    "sparse": (
        Bernoulli(),
        torch.from_numpy(ANSWERS).to_sparse(),
        "data: a dense tensor.*sparse_coo",
    ),
    "one column": (Bernoulli(), pd.Series(ANSWERS[:, 0]), r"\(rows, items\).*\(60,\)"),
    "nothing": (Bernoulli(), None, r"data: .*\(rows, items\)"),
    "infinite": (Normal(), changed(2, 3, np.inf), "infinity in row 2, column 3"),
    "negative count": (Poisson(), changed(2, 3, -1), r"column '3'.*negative value -1"),
    "fractional count": (Poisson(), changed(2, 3, 0.5), r"column '3'.*whole counts, found 0.5"),
    "not binary": (Bernoulli(), changed(2, 3, 2), r"column '3'.*0 and 1, found 2"),
    "not positive": (LogNormal(), ANSWERS, r"column '0'.*positive, found 0"),
    "second block": (
        Blocks((Normal(), 3), (Poisson(), 3)),
        changed(0, 4, 1.5),
        r"column '4'.*whole counts",
    ),
    "empty row": (Bernoulli(), changed(4, slice(None), np.nan), "row 4 has no observed entry"),
    "empty column": (
        Bernoulli(),
        changed(slice(None), 4, np.nan),
        "column '4' has no observed entry",
    ),
    "far from zero": (
        Normal(),
        changed(slice(None), 1, 5000 + np.arange(60)),
        r"column '1' has mean.*standardise",
    ),
}


@pytest.fixture
def no_work(monkeypatch):
    """Fails where a fit goes on to its start."""

    def work(*args):
        raise AssertionError("bad input was let through")

    for module, name in (
        ("structures.layers.structure", "spectral_start"),
        ("structures.layers.structure", "random_start"),
        ("fitting.fit", "Program"),
    ):
        monkeypatch.setattr(importlib.import_module(f"inference.{module}"), name, work)


@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data(case, no_work):
    response, data, message = BAD_DATA[case]
    with pytest.raises(ValueError, match=message):
        fit(DeepDiscreteEncoder(6, (2,), response), data, METHOD)


BAD_MODELS = {
    "more latents than items": ({"latent_sizes": (7,)}, "latent_sizes.*7 exceeds num_items = 6"),
    "growing layers": ({"latent_sizes": (2, 3)}, "must fall"),
    "no layer": ({"latent_sizes": ()}, "at least one layer"),
    "fraction": ({"latent_sizes": (2.5,)}, "positive integer"),
    "graph shape": (
        {"latent_sizes": (2,), "graphs": (np.ones((5, 2)),)},
        r"graphs\[0\].*\(6, 2\).*\(5, 2\)",
    ),
    "graph values": (
        {"latent_sizes": (2,), "graphs": (np.full((6, 2), 0.5),)},
        r"graphs\[0\].*0 and 1",
    ),
    "empty latent": (
        {"latent_sizes": (2,), "graphs": (np.eye(6)[:, :2] * [1, 0],)},
        "latent 1 has no edge",
    ),
    "number of graphs": ({"latent_sizes": (2,), "graphs": (None, None)}, "1 matrices"),
    "bound": ({"latent_sizes": (2,), "bound": -1.0}, "bound"),
    "blocks": (
        {"latent_sizes": (2,), "response": Blocks((Normal(), 5))},
        "5 columns.*num_items = 6",
    ),
}


@pytest.mark.parametrize("case", BAD_MODELS)
def test_bad_models(case):
    fields, message = BAD_MODELS[case]
    with pytest.raises(ValueError, match=message):
        DeepDiscreteEncoder(6, **fields)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"num_restarts": 0}, "num_restarts"),
        ({"num_restarts": 2.0}, "num_restarts"),
        ({"num_restarts": True}, "num_restarts"),
        ({"seed": -1}, "seed"),
        ({"seed": 0.5}, "seed"),
        ({"seed": 2**70}, "seed"),
        ({"init": "best"}, "init"),
        ({"init": 3}, "init.*3"),
        ({"init": [torch.ones(6, 2)]}, "init"),
        ({"init": {"loading": torch.ones(6, 2)}}, "init.*missing"),
        ({"method": "em"}, "method"),
        ({"method": EM}, "method.*EM"),
        ({"model": None}, "model.*None"),
        ({"model": DeepDiscreteEncoder}, "model.*not a class"),
        ({"checkpoint": 3}, "checkpoint"),
        ({"checkpoint": Path(__file__).parent}, "checkpoint.*got a folder"),
        ({"checkpoint": Path(__file__) / "fit.safetensors"}, "checkpoint.*inside a file"),
    ],
)
def test_bad_settings(settings, name):
    with pytest.raises(ValueError, match=name):
        fit(
            **{"model": DeepDiscreteEncoder(6, (2,)), "data": ANSWERS, "method": METHOD, **settings}
        )


def test_a_given_start_is_checked_and_kept():
    model = DeepDiscreteEncoder(6, (2,), bound=4.0)
    first = fit(model, ANSWERS, EM(tolerance=1e-10, max_iterations=3000))
    again = fit(model, ANSWERS, METHOD, init=first)
    assert again.num_iterations <= 5
    assert again.objective >= first.objective - 1e-9
    for name, value, message in (
        ("loadings_1", torch.ones(5, 2), "shape"),
        ("intercepts_1", torch.full((6,), 9.0), "outside its support"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(model, ANSWERS, METHOD, init={**first.params, name: value})
    part = {"loadings_1": first.params["loadings_1"]}
    filled = fit(model, ANSWERS, METHOD, init=part)  # the rest starts as by default
    assert filled.objective >= first.objective - 1e-3
    with pytest.raises(ValueError, match=r"init: parameter 'proportions' is missing"):
        fit(model, ANSWERS, METHOD, init={**part, "intercept": torch.zeros(6)})


def test_a_constant_column_fits_and_is_named():
    frame = pd.DataFrame(changed(slice(None), 2, 1.0), columns=list("abcdef"))
    with pytest.warns(ConstantColumnWarning, match="c$"):
        result = fit(DeepDiscreteEncoder(6, (1,)), frame, EM(max_iterations=3000))
    assert result.item_names == tuple("abcdef")
    assert math.isfinite(result.objective)
    assert 5 < result.params["intercepts_1"][2] < 12  # the prior keeps it finite
    with (
        pytest.warns(ConstantColumnWarning, match="c$"),
        pytest.warns(UserWarning, match=r"intercepts_1\[c\]"),
    ):
        result = fit(DeepDiscreteEncoder(6, (1,), bound=15.0), frame, EM(max_iterations=3000))
    assert result.params["intercepts_1"][2] > 14


@pytest.mark.parametrize(
    "kind",
    [
        "array",
        "integers",
        "booleans",
        "frame",
        "nullable frame",
        "tensor",
        "list",
        "half",
        "long",
        "swapped",
        "grad",
    ],
)
def test_tables_of_every_kind_give_one_answer(kind):
    tables = {
        "array": ANSWERS,
        "integers": ANSWERS.astype(int),
        "booleans": ANSWERS.astype(bool),
        "frame": pd.DataFrame(ANSWERS),
        "nullable frame": pd.DataFrame(ANSWERS).astype("Int64"),
        "tensor": torch.from_numpy(ANSWERS),
        "list": ANSWERS.tolist(),
        "half": torch.from_numpy(ANSWERS).half(),
        "long": ANSWERS.astype(np.longdouble),
        "swapped": ANSWERS.astype(">f8"),
        "grad": torch.from_numpy(ANSWERS).requires_grad_(),
    }
    model = DeepDiscreteEncoder(6, (1,), bound=4.0)
    method = EM(max_iterations=2000)
    assert fit(model, tables[kind], method).objective == fit(model, ANSWERS, method).objective


def test_masked_entries_are_missing():
    hidden = np.ma.masked_array(changed(3, 2, 999), mask=np.zeros((60, 6)))
    hidden[3, 2] = np.ma.masked
    model = DeepDiscreteEncoder(6, (1,), bound=4.0)
    assert (
        fit(model, hidden, METHOD).objective == fit(model, changed(3, 2, np.nan), METHOD).objective
    )


@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_nothing_is_written_into_the_callers_table():
    table = changed(3, 2, np.nan)
    table.flags.writeable = False
    tensor = torch.from_numpy(changed(3, 2, np.nan))
    before = tensor.clone()
    for data in (table, tensor):
        fit(DeepDiscreteEncoder(6, (2,)), data, METHOD, num_restarts=2)
    assert torch.equal(tensor.nan_to_num(9), before.nan_to_num(9))


@pytest.mark.parametrize("num_rows", [1, 2, 5])
@pytest.mark.parametrize(
    "response", [Bernoulli(), Poisson(), Normal(), LogNormal()], ids=lambda r: type(r).__name__
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_handful_of_rows_is_enough_to_run(response, num_rows):
    x = np.random.default_rng(num_rows).integers(0, 2, (num_rows, 6)) + (
        1.0 if isinstance(response, LogNormal) else 0.0
    )
    for sizes in ((1,), (6,), (3, 2, 1)):
        result = fit(
            DeepDiscreteEncoder(6, sizes, response), x, EM(max_iterations=3), num_restarts=2
        )
        assert math.isfinite(result.objective)
        assert all(torch.isfinite(value).all() for value in result.params.values())


def test_single_precision_is_kept():
    result = fit(
        DeepDiscreteEncoder(6, (1,), Normal()),
        torch.randn(80, 6, generator=torch.Generator().manual_seed(0)),
        EM(tolerance=1e-5, parameter_tolerance=1e-2),
    )
    assert {value.dtype for value in result.params.values()} == {torch.float32}


@pytest.mark.parametrize("name", ["table.csv", "table.parquet", "table.arrow"])
def test_a_file_that_needs_pyarrow_names_the_extra(name, tmp_path, monkeypatch):
    table, file = pd.DataFrame({"a": [0.0, 1.0], "b": [1.0, 0.0]}), tmp_path / name
    writers = {".csv": table.to_csv, ".parquet": table.to_parquet, ".arrow": table.to_feather}
    writers[file.suffix](file)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    readers = [read_table, read_frame, *([RowBlocks.of] if name != "table.csv" else [])]
    for read in readers:
        with pytest.raises(ValueError, match=r'needs pyarrow.*pip install "ppl-models\[arrow\]"$'):
            read(file)


def test_the_command_line_without_typer_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit, match=r'needs typer.*pip install "ppl-models\[cli\]"$'):
        ppl_models_command.main()


def test_a_bar_of_progress_without_rich_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with pytest.raises(ValueError, match=r'needs rich.*pip install "ppl-models\[cli\]"$'):
        fit(Mixture(2), ANSWERS, METHOD, num_restarts=1, progress=True)


def test_a_scheduler_without_dask_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)

    def job(seed):
        return seed

    with pytest.raises(ValueError, match=r'pip install "ppl-models\[cluster\]"$'):
        run_jobs(job, [{"seed": 1}], scheduler="tcp://localhost:8786")


WITHOUT_EXTRAS = """
import sys
sys.modules.update(dict.fromkeys(("pyarrow", "rich", "typer", "distributed", "dask")))
import numpy as np, pandas as pd
from inference import EM, Fit, fit
from ppl_models import Mixture
rows = np.random.default_rng(0).random((80, 3)) < 0.5
table = pd.DataFrame(rows.astype(float), columns=list("abc"))
result = fit(Mixture(2), table, EM(max_iterations=30), num_restarts=1)
result.summary(table), result.posterior_frame(table), result.predict(table)
result.report("page.html", table)
result.save("kept")
print(Fit.load("kept").num_rows)
"""


def test_what_needs_no_extra_runs_without_them(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT_EXTRAS]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("80\n", "")
