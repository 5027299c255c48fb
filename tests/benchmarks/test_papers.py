"""The store of the papers' replicates: cells, records, runner, page, check."""

from __future__ import annotations

import datetime
import json
import math
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import papers.cells
import papers.check
import papers.run
import papers.store
import pytest
from papers.cells import (
    AT_OR_BETTER,
    NOT_COMPARABLE,
    NOT_RUN,
    UNDECIDED,
    WITHIN,
    WORSE,
    Estimate,
    Study,
    estimate,
    need,
    percent_error,
    published,
    verdict,
)
from papers.check import check, differences
from papers.page import draw, page
from papers.run import AT_ONCE, fill, queue
from papers.store import Record, Store, values
from papers.studies import STUDIES
from support.tiny_paper import cell, setting, study

import ppl_models

TODAY = datetime.date(2026, 11, 25)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results", tmp_path / "locks")


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Study:
    own = study(cell(0.0, setting(0.0)), cell(9.0, setting(3.0, seconds=0.2)))
    monkeypatch.setattr(papers.run, "STUDIES", (own,))
    return own


def lines(store: Store, name: str = "tiny") -> list[str]:
    return (store.folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()


class TestEstimates:
    def test_the_jackknife_of_a_mean_is_its_standard_error(self) -> None:
        values = np.random.default_rng(1).normal(size=12)
        own = estimate(values.tolist(), "mean")
        assert own.error == pytest.approx(values.std(ddof=1) / 12**0.5)
        assert own.value == pytest.approx(values.mean())

    def test_a_percentage_is_never_certain(self) -> None:
        own = estimate([1] * 20, "percent")
        assert own.value == 100
        assert own.error == percent_error(100, 20) > 0

    def test_errors_of_medians_and_rmse_cover(self) -> None:
        """Of 400 samples of 40 rows, two standard errors hold the truth in about 95 %."""
        rng = np.random.default_rng(2)
        hits = {"median": 0, "rmse": 0}
        for sample in rng.normal(size=(400, 40)):
            median = estimate(sample.tolist(), "median")
            hits["median"] += abs(median.value) < 2 * median.error
            rmse = estimate((1 + 0.1 * sample).clip(0.1).tolist(), "rmse")
            hits["rmse"] += abs(rmse.value - 1) < 2 * rmse.error
        assert 0.88 < hits["median"] / 400 < 0.99
        assert 0.88 < hits["rmse"] / 400 < 0.99

    def test_one_run_has_no_error(self) -> None:
        assert math.isinf(estimate([2.0], "mean").error)
        assert math.isinf(estimate([2.0], "median").error)

    def test_bad_summaries_are_refused(self) -> None:
        with pytest.raises(ValueError, match="summary must be mean"):
            estimate([1.0], "mode")
        with pytest.raises(ValueError, match="at least one value"):
            estimate([], "mean")


class TestVerdicts:
    @pytest.mark.parametrize(
        ("value", "error", "better", "expected"),
        [
            (1.1, 0.1, "more", AT_OR_BETTER),
            (0.9, 0.1, "more", WITHIN),
            (0.5, 0.1, "more", WORSE),
            (0.5, 0.1, "less", AT_OR_BETTER),
            (1.5, 0.1, "less", WORSE),
            (1.5, 0.1, "alike", WORSE),
            (1.1, 0.1, "alike", WITHIN),
            (0.5, math.inf, "more", UNDECIDED),
        ],
    )
    def test_verdict(self, value: float, error: float, better: str, expected: str) -> None:
        own = cell(1.0, setting(0.0), better=better)
        assert verdict(own, Estimate(value, error, 20)) == expected

    def test_doubted_drawn_and_absent(self) -> None:
        ours = Estimate(1.0, 0.1, 20)
        assert verdict(cell(1.0, setting(0.0), doubt="copied"), ours) == NOT_COMPARABLE
        assert verdict(cell(None, setting(0.0)), ours) == NOT_COMPARABLE
        assert verdict(cell(1.0, setting(0.0)), None) == NOT_RUN

    def test_a_published_number_of_few_replicates_is_less_certain(self) -> None:
        ours = Estimate(0.5, 0.1, 20)
        assert verdict(replace(cell(1.0, setting(0.0)), replicates=1), ours) == WITHIN

    def test_a_difference_within_the_rounding_of_the_published_number_is_none(self) -> None:
        ours = Estimate(0.9836, 0.0, 20)
        assert verdict(cell(0.984, setting(0.0)), ours) == WITHIN
        assert verdict(replace(cell(0.984, setting(0.0)), digits=4), ours) == WORSE

    def test_need(self) -> None:
        own = cell(1.0, setting(0.0))
        assert need(own, None, 20) == need(own, Estimate(1, 0.1, 4), 20) == 10
        assert need(own, Estimate(1.6, 0.1, 6), 20) == 0  # a third of the difference is larger
        assert need(own, Estimate(1.1, 0.1, 6), 20) == pytest.approx(3)
        assert need(own, Estimate(1.1, 0.1, 20), 20) == 0
        assert need(replace(own, error=0.6), Estimate(1.1, 0.1, 6), 20) == 0
        assert need(cell(1.0, setting(0.0), doubt="copied"), Estimate(1, 1, 6), 20) == 1


class TestStore:
    def test_records_are_appended_and_read(self, store: Store) -> None:
        own = setting(0.0)
        store.append(own, 0, {"value": 1 / 3, "list": [1.0, np.float64(2.5)]}, 0.1234567)
        store.append(own, 1, {"value": 2, "list": [3, 4]}, 1)
        done = store.done(own)
        assert values(done, "value") == [0.333333, 2]
        assert values(done, "list") == [1, 2.5, 3, 4]
        assert (done[0].seconds, done[0].library) == (0.123, ppl_models.__version__)
        assert "/" not in json.loads(lines(store)[0])["machine"]

    def test_a_changed_record_is_refused(self, store: Store) -> None:
        store.append(setting(0.0), 0, {"value": 0.5}, 1)
        path = store.folder / "tiny.jsonl"
        path.write_text(path.read_text().replace('"value":0.5', '"value":0.6'))
        with pytest.raises(ValueError, match="tiny.jsonl, line 1: the record's digest"):
            store.records("tiny")

    def test_a_newer_format_and_a_record_without_its_setting_are_refused(
        self, store: Store
    ) -> None:
        store.append(setting(0.0), 0, {"value": 0.5}, 1)
        path = store.folder / "tiny.jsonl"
        content = json.loads(path.read_text())
        path.write_text(json.dumps(content | {"format": 2}) + "\n")
        with pytest.raises(ValueError, match="line 1: format 1 was expected, got 2"):
            store.records("tiny")
        del content["setting"]
        path.write_text(json.dumps(content) + "\n")
        with pytest.raises(ValueError, match="line 1: the record lacks setting"):
            store.records("tiny")
        path.write_text("nonsense\n")
        with pytest.raises(ValueError, match="line 1: a record was expected"):
            store.records("tiny")

    def test_a_torn_last_line_is_dropped(self, store: Store) -> None:
        own = setting(0.0)
        store.append(own, 0, {"value": 1}, 1)
        path = store.folder / "tiny.jsonl"
        path.write_text(path.read_text() + '{"format":1,"stu')
        assert list(store.done(own)) == [0]
        store.append(own, 1, {"value": 2}, 1)
        assert list(store.done(own)) == [0, 1]

    def test_an_older_estimator_does_not_count(self, store: Store) -> None:
        old, new = setting(0.0), setting(0.0, version=2)
        store.append(old, 0, {"value": 1}, 1)
        assert not store.done(new)
        store.append(new, 0, {"value": 2}, 1)
        assert values(store.done(new), "value") == [2]
        assert len(store.records("tiny")) == 2

    def test_bad_numbers_are_refused(self, store: Store) -> None:
        with pytest.raises(ValueError, match="value: a finite number was expected, got nan"):
            store.append(setting(0.0), 0, {"value": math.nan}, 1)
        store.append(setting(0.0), 0, {"value": 1}, 1)
        with pytest.raises(ValueError, match="a number 'other' was expected, got value"):
            values(store.done(setting(0.0)), "other")

    def test_a_claim_keeps_others_out(self, store: Store) -> None:
        own, seen = setting(0.0), []
        other = Store(store.folder, store.locks)

        def claim() -> None:
            with other.claimed(own, 0) as free:
                seen.append(free)

        with store.claimed(own, 0) as free:
            assert free
            thread = threading.Thread(target=claim)
            thread.start()
            thread.join()
            store.append(own, 0, {"value": 1}, 1)
        claim()
        assert seen == [False, False]


class TestReferences:
    def test_a_reference_without_a_source_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(papers.cells, "REFERENCES", tmp_path)
        (tmp_path / "mine.json").write_text('{"table": 1}')
        with pytest.raises(ValueError, match='references/mine.json: a text under "source"'):
            published("mine")

    def test_every_reference_has_its_source(self) -> None:
        for path in papers.cells.REFERENCES.glob("*.json"):
            assert published(path.stem)["source"]


class TestRun:
    def test_it_runs_until_every_cell_is_decided(self, store: Store, tiny: Study) -> None:
        said: list[Mapping[str, Any]] = []
        num = fill((tiny,), store, 1.0, say=said.append)
        near, far = (store.done(own) for own in tiny.settings().values())
        assert len(near) == 20  # the number published
        assert 5 <= len(far) < 20  # 3 and 9 are soon told apart
        assert num == len(said) == len(near) + len(far)
        assert fill((tiny,), store, 1.0) == 0

    def test_it_goes_on_where_it_was_ended(self, store: Store, tiny: Study) -> None:
        def stop(line: Mapping[str, Any]) -> None:
            if line["seed"] == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fill((tiny,), store, 1.0, say=stop)
        before = lines(store)
        fill((tiny,), store, 1.0)
        assert lines(store)[: len(before)] == before
        replicates = [(record.key, record.seed) for record in store.records("tiny")]
        assert len(replicates) == len(set(replicates))

    def test_what_is_most_unsure_for_its_cost_comes_first(self, store: Store, tiny: Study) -> None:
        first = queue((tiny,), store, None, set())
        assert [own.arguments["mean"] for _, own, _ in first] == [0.0, 3.0]
        cheap = setting(0.0)
        for seed in range(6):  # the cheap one has what it needs at least
            store.append(cheap, seed, {"value": (-1) ** seed}, 0.1)
        then = queue((tiny,), store, None, set())
        assert [own.arguments["mean"] for _, own, _ in then] == [3.0, 0.0]

    def test_settings_with_a_run_wait_where_breadth_is_asked_for(
        self, store: Store, tiny: Study
    ) -> None:
        store.append(setting(0.0), 0, {"value": 1.0}, 0.1)
        assert [
            own.arguments["mean"] for _, own, _ in queue((tiny,), store, None, set(), True)
        ] == [3.0]
        assert fill((tiny,), store, 1.0, unrun=True) == AT_ONCE
        assert fill((tiny,), store, 1.0, unrun=True) == 0

    def test_the_hours_are_kept(self, store: Store, tiny: Study) -> None:
        times = iter(range(0, 10_000, 60))  # a minute passes at every look
        num = fill((tiny,), store, 0.1, clock=lambda: float(next(times)))
        assert 0 < num < 20
        slow = study(cell(0.0, setting(5.0, seconds=4000.0)))
        assert fill((slow,), store, 1.0) == 0  # would take longer than the hour

    def test_a_failure_is_said_and_left(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own = study(cell(0.0, setting(1.0, fails=True)), cell(9.0, setting(3.0)))
        monkeypatch.setattr(papers.run, "STUDIES", (own,))
        said: list[Mapping[str, Any]] = []
        fill((own,), store, 1.0, say=said.append)
        assert [line["failed"] for line in said if "failed" in line] == [
            "RuntimeError: the fit broke"
        ] * 5
        assert len(store.records("tiny")) >= 5

    def test_numbers_that_are_not_finite_end_a_setting_not_the_run(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bad, good = cell(0.0, setting(1.0)), cell(9.0, setting(3.0))
        own = study(bad, good)
        own = replace(
            own,
            replicate=lambda mean, seed: {"value": math.nan if mean == 1.0 else float(seed)},
        )
        monkeypatch.setattr(papers.run, "STUDIES", (own,))
        said: list[Mapping[str, Any]] = []
        fill((own,), store, 1.0, say=said.append)
        failed = [line["failed"] for line in said if "failed" in line]
        assert failed
        assert all("finite" in words for words in failed)
        assert {record.key for record in store.records("tiny")} == {setting(3.0).key}

    def test_absent_data_are_passed_over(
        self, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own = study(cell(0.0, setting(0.0, file="table.npz")))
        monkeypatch.setattr(papers.run, "STUDIES", (own,))
        monkeypatch.delenv("PPL_MODELS_DATA", raising=False)
        assert fill((own,), store, 1.0) == 0
        assert "wants table.npz" in page(store, (own,))
        (tmp_path / "table.npz").touch()
        monkeypatch.setenv("PPL_MODELS_DATA", str(tmp_path))
        assert fill((own,), store, 1.0) == 20

    def test_replicates_of_several_runs_count_them(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own = study(cell(0.0, setting(0.0, runs=8)))
        monkeypatch.setattr(papers.run, "STUDIES", (own,))
        assert fill((own,), store, 1.0) == 3  # 24 runs, 20 are published
        (only,) = own.settings().values()
        assert values(store.done(only), "value")[:2] == [
            pytest.approx(float(np.random.default_rng([seed, 7]).normal()), rel=1e-5)
            for seed in (0, 1)
        ]

    def test_two_processes_fill_one_store(self, store: Store, tiny: Study) -> None:
        folders = f"Path({str(store.folder)!r}), Path({str(store.locks)!r})"
        code = f"""
from pathlib import Path
import papers.run
from papers.store import Store
from support.tiny_paper import cell, setting, study
own = study(cell(0.0, setting(0.0)), cell(9.0, setting(3.0, seconds=0.2)))
papers.run.STUDIES = (own,)
papers.run.fill((own,), Store({folders}), 1.0)
"""
        path = [entry for entry in sys.path if entry]
        started = [
            subprocess.Popen([sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}\n{code}"])
            for _ in range(2)
        ]
        assert [process.wait(timeout=600) for process in started] == [0, 0]
        near, far = tiny.settings().values()
        records = store.records("tiny")
        assert len(store.done(near)) == 20
        assert len(store.done(far)) >= 5
        assert len({(record.key, record.seed) for record in records}) == len(records)

    def test_names_are_checked(self, tiny: Study) -> None:
        with pytest.raises(ValueError, match="PAPER must be one of tiny, got 'other'"):
            papers.run.chosen("other")
        with pytest.raises(ValueError, match="TABLE must be one of 1, got '2'"):
            tiny.settings("2")


class TestPage:
    def test_numbers_verdicts_and_what_is_left(self, store: Store, tiny: Study) -> None:
        (near, far) = tiny.settings().values()
        empty = page(store, (tiny,))
        assert "| by the paper's protocol | 2 (100 %) | 0 (0 %) |" in empty
        assert '<span style="color: #888">2 s</span>' in empty
        for seed in range(6):
            store.append(far, seed, {"value": 3 + seed / 10}, 0.1)
        shown = page(store, (tiny,))
        assert "| 9.000 | 3.250 ± 0.076 (6) **−** |" in shown
        assert "| tiny | 1 | row, 3.0 | paper | 9.000 | 3.250 (6) |" in shown
        summary = (
            "| by the paper's protocol | 2 (100 %) | 1 (50 %) | 0 (0 %) | 0 (0 %) | 1 (100 %) |"
        )
        assert summary in shown

    def test_an_old_record_is_marked(self, store: Store) -> None:
        store.append(setting(0.0), 0, {"value": 1}, 1)
        assert "old records" in page(store, (study(cell(0.0, setting(0.0, version=2))),))

    def test_doubts_are_said(self, store: Store) -> None:
        own = study(cell(0.0, setting(0.0), doubt="printed twice"))
        assert "- Not comparable, printed twice: row, 0.0." in page(store, (own,))

    def test_a_table_without_settings_is_counted(self, store: Store) -> None:
        own = study(cell(0.0, setting(0.0)), replace(cell(1.0, setting(1.0)), settings={}))
        shown = page(store, (own,))
        assert "| 2 published cells |" in shown
        assert "| by the paper's protocol | 1 (50 %) | 0 (0 %) |" in shown

    def test_what_is_known_of_the_worse_is_said(self, store: Store) -> None:
        own = study(cell(9.0, setting(3.0), note="Another start"))
        assert "Another start" not in page(store, (own,))
        for seed in range(6):
            store.append(setting(3.0), seed, {"value": 3 + seed / 10}, 0.1)
        assert "- Another start: row, 3.0." in page(store, (own,))

    def test_figures(self, store: Store, tiny: Study, tmp_path: Path) -> None:
        draw(tmp_path / "pictures", store, (tiny,))
        assert not (tmp_path / "pictures").exists()
        store.append(setting(0.0), 0, {"value": 1}, 1)
        draw(tmp_path / "pictures", store, (tiny,))
        assert [path.name for path in (tmp_path / "pictures").iterdir()] == ["tiny_1.svg"]
        assert "![1](pictures/papers/tiny_1.svg)\n\n*The line rises.*" in page(store, (tiny,))


class TestCheck:
    def test_a_store_as_it_was_made_passes(self, store: Store, tiny: Study) -> None:
        fill((tiny,), store, 1.0)
        assert check((tiny,), store, TODAY) == []

    def test_numbers_that_cannot_be_had_again_fail(self, store: Store, tiny: Study) -> None:
        store.append(setting(0.0), 0, {"value": 0.25, "positive": 1}, 0.1)
        words, _ = check((tiny,), store, TODAY)
        assert words.startswith("tiny, {'mean': 0.0}, seed 0: value: 0.25 in the store, ")

    def test_tolerance_and_lengths(self) -> None:
        record = Record("key", 0, {"a": [1.0, 2.0], "b": 0}, 1, "0", 1.0, 0.01)
        assert not differences({"a": (1.005, 2.0), "b": 0}, record)
        assert len(differences({"a": [1.02, 2.0], "b": 0}, record)) == 1
        assert len(differences({"a": [1.0]}, record)) == 2

    def test_a_record_of_no_table_is_refused(self, store: Store, tiny: Study) -> None:
        store.append(setting(5.0), 0, {"value": 0.25}, 0.1)
        with pytest.raises(ValueError, match="no table has the setting"):
            check((tiny,), store, TODAY)

    def test_ci_fails_where_the_store_was_changed(
        self, store: Store, tiny: Study, monkeypatch: pytest.MonkeyPatch, capsys: Any
    ) -> None:
        monkeypatch.setattr(papers.check, "STUDIES", (tiny,))
        monkeypatch.setattr(papers.check, "Store", lambda: store)
        fill((tiny,), store, 1.0)
        papers.check.main(["--date", "2026-11-25"])
        path = store.folder / "tiny.jsonl"
        path.write_text(path.read_text().replace('"seed":0', '"seed":9', 1))
        with pytest.raises(SystemExit) as ended:
            papers.check.main(["--date", "2026-11-25"])
        assert ended.value.code == 1
        assert "tiny.jsonl, line 1: the record's digest" in capsys.readouterr().err

    def test_days_draw_other_records(self, store: Store) -> None:
        from papers.check import drawn

        own = study(*(cell(0.0, setting(float(k), replicates=1)) for k in range(8)))
        for only in own.settings().values():
            store.append(only, 0, {"value": 0.25}, 0.1)
        days = [
            {record.key for _, record in drawn((own,), store, TODAY + datetime.timedelta(day))}
            for day in range(6)
        ]
        assert all(len(day) == 3 for day in days)
        assert len(set.union(*days)) > 3


class TestStudies:
    def test_every_cell_has_its_place(self) -> None:
        for own in STUDIES:
            assert len({table.name for table in own.tables}) == len(own.tables)
            for table in own.tables:
                places = [(cell.row, cell.column) for cell in table.cells]
                assert len(set(places)) == len(places), table.name
                assert all(cell.settings for cell in table.cells) or table.missing

    def test_published_cells_of_the_manuscript(self) -> None:
        """Its tables by hand: structure 1, method 5 at N' = 5N; growing N, method 2 at 7N."""
        cells = [own for own in STUDIES if own.name == "latent_attributes"][0].tables
        found = {
            (table.name, cell.row, cell.column): cell.published
            for table in cells
            for cell in table.cells
        }
        assert found["structure 1", "method 5, N' = 5N", "N = 2000, BDeu"] == 46.5
        assert found["structure 2, growing N", "method 2, N' = 7N", "N = 50000, BDeu"] == 68.5
        assert found["structure 3", "method 4, N' = 10N", "N = 2000, BIC"] == 18
        assert found["Q estimated", "method 2", "structure 2, N = 5000"] == 91

    def test_published_cells_of_draws(self) -> None:
        """Table S.2 has its own numbers by draws; S.3 another run of one draw."""
        tables = {
            table.name: {(cell.row, cell.column): cell.published for cell in table.cells}
            for own in STUDIES
            if own.name == "deep_discrete_encoder"
            for table in own.tables
        }
        draws = [tables["S.2"][f"Bernoulli, draws: {num}", "1000"] for num in (1, 5, 25)]
        assert draws == [0.916, 0.92, 0.923]
        assert tables["S.3"]["(18, 6, 2), B_s, SAEM", "1000"] == 0.931

    def test_the_records_of_the_repository_are_of_known_settings(self) -> None:
        for own in STUDIES:
            known = own.settings()
            assert {record.key for record in Store().records(own.name)} <= set(known)
