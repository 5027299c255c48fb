"""Every benchmark tells its options; some are run at their quick size."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

FOLDER = Path(__file__).parent.parent / "benchmarks"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("[a-z]*.py"))


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.delenv("PPL_MODELS_DATA", raising=False)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def script(name: str) -> ModuleType:
    return importlib.import_module(name)


def lines(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.usefixtures("folder")
def test_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        script(name).main(["--help"])
    told = capsys.readouterr().out
    assert ended.value.code == 0
    assert told.startswith(f"usage: {name}.py")
    assert all(option in told for option in ("--quick", "--threads", "--out"))


@pytest.mark.parametrize("name", ["acdc_null", "causal_ges", "dde_selection", "options_moments"])
@pytest.mark.usefixtures("folder")
def test_quick_run(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "results" / "lines.jsonl"
    script(name).main(["--quick", "--replicates", "1", "--threads", "1", "--out", str(out)])
    told = capsys.readouterr().out
    assert lines(told)
    assert all(line["benchmark"] == name and line["threads"] == 1 for line in lines(told))
    assert out.read_text(encoding="utf-8") == told


@pytest.mark.usefixtures("folder")
def test_data_that_are_absent(capsys: pytest.CaptureFixture[str]) -> None:
    script("dde_timss").main(["--quick"])
    (line,) = lines(capsys.readouterr().out)
    assert line["benchmark"] == "dde_timss"
    assert "timss2019_dde.npz" in line["skipped"]


@pytest.mark.usefixtures("folder")
def test_options_that_are_given_win_over_quick(capsys: pytest.CaptureFixture[str]) -> None:
    script("acdc_null").main(["--quick", "--rows", "50"])
    assert {(line["rows"], line["of"]) for line in lines(capsys.readouterr().out)} == {(50, 6)}


@pytest.mark.usefixtures("folder")
def test_quick_names_options() -> None:
    bench = script("_bench")
    with pytest.raises(ValueError, match="quick must name options of x.py, got \\['restart'\\]"):
        bench.run(bench.command_line("x.py", "", replicates=1), lambda args: [], [], {"restart": 1})
