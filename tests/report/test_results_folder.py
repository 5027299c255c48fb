"""The folder of results: whole or as it was, and what is damaged in it refused by name."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import inference.report.fit
from inference import EM, Fit, fit
from inference.fitting.export import load_netcdf
from inference.report.results_folder import check_output_folder, read_results, write_results
from ppl_models import (
    AttributeGroups,
    Categorical,
    DeepDiscreteEncoder,
    LatentAttributeModel,
    Mixture,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore::inference.ConvergenceWarning", "ignore::inference.BoundWarning"
)
PARTS = {"fit", "posterior.nc", "report.html", "summary.json"}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes seconds and has its own tests."""
    monkeypatch.setattr(
        inference.report.fit,
        "write_report",
        lambda fit, data, path, **_: Path(path).write_text("page"),
    )


def fitted(seed: int = 0, num_items: int = 3) -> tuple[Fit, pd.DataFrame]:
    values = (
        torch.rand(
            40, num_items, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
        )
        < 0.5
    ).double()
    frame = pd.DataFrame(values.numpy(), columns=[f"item {j}" for j in range(num_items)])
    return fit(DeepDiscreteEncoder(num_items, (1,)), frame, EM(max_iterations=3)), frame


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "error", [KeyboardInterrupt, OSError(28, "No space left on device"), RuntimeError, MemoryError]
)
@pytest.mark.parametrize("at", ["posterior.nc", "summary.json"])
def test_older_results_stay_whole_where_new_ones_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Any, at: str
) -> None:
    """Failed before: the new fit stood beside the old picture, and the summary was gone."""
    older, frame = fitted(0)
    write_results(older, frame, tmp_path / "out")
    before = contents(tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == PARTS
    newer, other = fitted(1)

    def fails(*_: Any, **__: Any) -> None:
        raise error

    where = {
        "posterior.nc": "inference.fitting.export.save_netcdf",
        "summary.json": "inference.report.results_folder.summarise",
    }
    monkeypatch.setattr(where[at], fails)
    with pytest.raises(error if isinstance(error, type) else type(error)):
        write_results(newer, other, tmp_path / "out")
    assert contents(tmp_path / "out") == before
    assert not (tmp_path / "out" / ".writing").exists()
    with pytest.raises(error if isinstance(error, type) else type(error)):
        write_results(newer, other, tmp_path / "first")
    kept = {path.name for path in (tmp_path / "first").iterdir()}
    assert kept == (
        {"fit"} if at == "posterior.nc" else {"fit", "posterior.nc"}
    )  # what a run of hours has found is kept
    assert Fit.load(tmp_path / "first" / "fit").log_likelihood == newer.log_likelihood
    with pytest.raises(ValueError, match="it holds no summary.json"):
        read_results(tmp_path / "first")


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt, OSError(28, "No space left on device"), RuntimeError, MemoryError]
)
@pytest.mark.parametrize("at", ["fit.write_report", "results_folder.identifiability_of"])
def test_a_page_that_fails_loses_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Any, at: str
) -> None:
    """Failed before: a finished fit of hours lay in a folder without data and summary."""
    result, frame = fitted(1)
    (tmp_path / "report.html").write_text("page of another fit")

    def fails(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(f"inference.report.{at}", fails)
    more = {"rows.csv": lambda path: path.write_text("rows")}
    with pytest.raises(error if isinstance(error, type) else type(error)):
        write_results(result, frame, tmp_path, more=more)
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept == PARTS - {"report.html"} | {"rows.csv"}
    again, data, summary = read_results(tmp_path)
    assert again.log_likelihood == result.log_likelihood == summary["log_likelihood"]
    assert data.equals(frame)


@pytest.mark.usefixtures("quick")
def test_what_a_killed_process_left_is_no_obstacle(tmp_path: Path) -> None:
    result, frame = fitted()
    left = tmp_path / "out" / ".writing" / "fit"
    left.mkdir(parents=True)
    (left / "fit.safetensors.partial").write_bytes(b"half")
    assert check_output_folder(tmp_path / "out") == tmp_path / "out"
    write_results(result, frame, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == PARTS
    again, data, summary = read_results(tmp_path / "out")
    assert again.log_likelihood == result.log_likelihood
    assert data.equals(frame)
    assert summary["log_likelihood"] == result.log_likelihood


@pytest.mark.usefixtures("quick")
def test_damaged_data_are_refused_by_name(tmp_path: Path) -> None:
    """Failed before: KeyError, RuntimeError and others of h5py and xarray.

    Bits flipped and ends cut, at random.
    """
    result, frame = fitted()
    write_results(result, frame, tmp_path / "out")
    path = tmp_path / "out" / "posterior.nc"
    good, rng, refused = path.read_bytes(), random.Random(3), 0
    for _ in range(60):
        changed = bytearray(good)
        if rng.random() < 0.6:
            bit = rng.randrange(8 * len(good))
            changed[bit // 8] ^= 1 << bit % 8
        else:
            changed = changed[: rng.randrange(len(good))]
        path.write_bytes(changed)
        try:
            _, data, _ = read_results(tmp_path / "out")
        except ValueError as error:
            refused += 1
            said = str(error)
            assert "posterior.nc" in said  # noqa: PT017
            assert "\n" not in said  # noqa: PT017
            continue
        assert data.equals(frame)
    assert refused > 10
    for content in (b"", b"nothing", b"\x89HDF\r\n\x1a\n", good[:100]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="posterior.nc"):
            load_netcdf(path)


@pytest.mark.usefixtures("quick")
def test_the_data_of_another_fit_are_refused(tmp_path: Path) -> None:
    for name, num_items in (("one", 3), ("two", 4)):
        result, frame = fitted(num_items=num_items)
        write_results(result, frame, tmp_path / name)
    (tmp_path / "two" / "posterior.nc").replace(tmp_path / "one" / "posterior.nc")
    with pytest.raises(
        ValueError, match=r"the data of the fit, of shape \(40, 3\), were expected, got \(40, 4\)"
    ):
        read_results(tmp_path / "one")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("levels", [("01", "02"), ("01", "1"), ("1", "2"), ("-1", "0")])
def test_names_of_categories_come_back_as_they_were(
    tmp_path: Path, levels: tuple[str, str]
) -> None:
    """Failed before: 01 came back as the number 1, which is another category, or none."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.choice(levels, (60, 2)), columns=["a", "b"])
    model = Mixture(1, Categorical.from_frame(frame))
    result = fit(model, frame, EM())
    write_results(result, frame, tmp_path / "out")
    again, data, _ = read_results(tmp_path / "out")
    expected = result.log_likelihood_rows(frame)
    assert torch.equal(again.log_likelihood_rows(data), expected)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "groups", [tuple(map(str, range(11))), ("1", "2"), ("01", "02"), ("early", "late")]
)
def test_labels_of_groups_come_back_as_they_were(tmp_path: Path, groups: tuple[str, ...]) -> None:
    """Numbers of groups were read as labels: of 0 to 10, sorted as texts, group 10 became 2."""
    q_matrix, groups = ((1, 0), (0, 1), (1, 0), (0, 1)), tuple(sorted(groups))
    rng, size = np.random.default_rng(0), 6 * len(groups)
    frame = pd.DataFrame((rng.random((size, 4)) < 0.5).astype(float), columns=list("abcd"))
    frame["group"] = np.resize(groups, size)
    model = AttributeGroups(LatentAttributeModel(q_matrix), groups)
    result = fit(model, frame, EM(max_iterations=3), num_restarts=1)
    write_results(result, frame, tmp_path / "out")
    again, data, _ = read_results(tmp_path / "out")
    expected = result.log_likelihood_rows(frame)
    assert torch.equal(again.log_likelihood_rows(data), expected)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("text", ["", "[]", "3", "{", "\x00", "null"])
def test_a_summary_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    result, frame = fitted()
    write_results(result, frame, tmp_path)
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(ValueError, match="summary.json: not a summary of a fit"):
        read_results(tmp_path)


@pytest.mark.parametrize("path", ["a\0b", "", "x" * 5000, 3])
def test_folders_that_are_none_are_refused(path: Any) -> None:
    with pytest.raises(ValueError, match="output folder"):
        check_output_folder(path)


FULL = """
    import resource, sys, warnings
    import numpy as np, pandas as pd
    from inference.report.results_folder import write_results
    from inference import Fit
    warnings.simplefilter("ignore")
    folder = sys.argv[1]
    frame = pd.read_csv(folder + "/rows.csv")
    result = Fit.load(folder + "/new")
    resource.setrlimit(resource.RLIMIT_FSIZE, (20000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    try:
        write_results(result, frame, folder + "/out")
    except OSError as error:
        print("OSError", error)
"""


@pytest.mark.usefixtures("quick")
@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
def test_a_full_disk_leaves_older_results(tmp_path: Path) -> None:
    older, frame = fitted(0)
    write_results(older, frame, tmp_path / "out")
    before = contents(tmp_path / "out")
    newer, other = fitted(1)
    newer.save(tmp_path / "new")
    other.to_csv(tmp_path / "rows.csv", index=False)
    assert resource.RLIMIT_FSIZE is not None
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FULL), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert "OSError" in done.stdout, done.stderr
    assert "could not be written" in done.stdout
    assert contents(tmp_path / "out") == before
    assert np.isfinite(read_results(tmp_path / "out")[0].log_likelihood)
