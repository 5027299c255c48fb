"""The EM loop: its objective, its restarts, its files."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace

import pytest
import torch

from inference import EM, ConvergenceWarning, fit
from inference.base.checkpoint import read_tensors
from inference.base.progress import NoProgress
from inference.engines.em import _left_by_steps
from inference.fitting.problem import problem_of
from inference.programs.program import Program
from inference.structures.layers.em_steps import LayeredSteps
from inference.structures.layers.spectral import spectral_start
from ppl_models import SCAD, Bernoulli, DeepDiscreteEncoder, Normal, Poisson, TruncatedLasso
from ppl_models.datasets import strict_design

NORMAL = Normal()
QUICK = EM(tolerance=1e-7, parameter_tolerance=1e-3)


def encoder(response=NORMAL, num_rows=200, seed=0, penalty=None, missing=0.0):
    model = DeepDiscreteEncoder(9, (3, 1), response, penalty=penalty, bound=8.0)
    x = Program(model, None, num_rows).simulate(strict_design(1, response), seed)["items"]
    if missing:
        generator = torch.Generator().manual_seed(seed)
        x[torch.rand(x.shape, generator=generator) < missing] = math.nan
    return model, x


PENALTIES = [None, TruncatedLasso(3.0, 0.4), SCAD.matching(TruncatedLasso(3.0, 0.4))]


@pytest.mark.parametrize("penalty", PENALTIES, ids=["none", "tlp", "scad"])
@pytest.mark.parametrize(
    "response", [Bernoulli(), Poisson(), Normal()], ids=lambda r: type(r).__name__
)
@pytest.mark.parametrize("missing", [0.0, 0.15])
def test_the_objective_never_falls_and_is_what_it_says(response, penalty, missing):
    model, x = encoder(response, penalty=penalty, missing=missing)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # small samples may end on a bound
        result = fit(model, x, replace(QUICK, max_iterations=150), num_restarts=2)
    trace = result.trace.objective
    assert (trace[1:] - trace[:-1]).min() > -1e-9 * trace[-1].abs()
    program = Program(model, x)
    assert result.log_likelihood == pytest.approx(
        float(result.log_likelihood_rows(x).sum()), rel=1e-12
    )
    assert result.log_likelihood == pytest.approx(
        float(program.log_marginal(result.params)), rel=1e-12
    )
    assert result.objective == pytest.approx(
        float(program.log_marginal(result.params) + program.log_prior(result.params)), rel=1e-12
    )
    assert result.objective_name == result.trace.name == "log-posterior"


def test_a_fit_on_a_face_of_the_box_is_stationary_inside_it():
    """Row 3 of these data draws its intercept to the bound; an earlier solver stopped there with a
    slope of 2.
    """
    model = DeepDiscreteEncoder(9, (3,), bound=10.0)
    x = Program(DeepDiscreteEncoder(9, (3, 1)), None, 2000).simulate(strict_design(1), 0)["items"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        result = fit(model, x, EM(tolerance=1e-12, parameter_tolerance=1e-6))
    params = {name: value.clone().requires_grad_() for name, value in result.params.items()}
    Program(model, x).log_marginal(params).backward()
    for name in ("loadings_1", "intercepts_1"):
        value, slope = params[name].detach(), params[name].grad
        outward = (value.abs() >= 10.0) & (slope * value > 0)
        assert slope[~outward].abs().max() < 0.01


@pytest.mark.parametrize("response", [Bernoulli(), Normal()], ids=lambda r: type(r).__name__)
@pytest.mark.parametrize("penalty", [None, TruncatedLasso(3.0, 0.4)], ids=["none", "tlp"])
@pytest.mark.filterwarnings("ignore::inference.ConvergenceWarning")
def test_restarts_in_one_batch_equal_single_runs(response, penalty):
    """Whatever one restart meets (a bound, a refused step), the others take the steps they would
    take alone.
    """
    model, x = encoder(response, seed=1, penalty=penalty)
    problem = problem_of(model, x, 0, start_given=True)
    start = spectral_start(model.layers(), model.root_layer(), x, num_starts=3)
    method = replace(QUICK, max_iterations=100)
    batch = method.run(problem, start, NoProgress(), None)
    for r in range(3):
        single = method.run(
            problem, {k: v[r : r + 1] for k, v in start.items()}, NoProgress(), None
        )
        assert torch.allclose(single.objective[0], batch.objective[r], rtol=1e-12, atol=0)
        assert all(
            torch.allclose(single.params[k][0], batch.params[k][r], rtol=0, atol=1e-6)
            for k in start
        )
        assert torch.equal(single.converged[0], batch.converged[r])


def test_chunks_do_not_matter():
    model, x = encoder(Poisson(), missing=0.1)
    start = spectral_start(model.layers(), model.root_layer(), x, num_starts=2)
    whole = LayeredSteps.build(model, x, 2**20).e_step(start)
    small = LayeredSteps.build(model, x, 64).e_step(start)
    assert torch.allclose(whole[1], small[1], rtol=1e-12)
    assert torch.allclose(whole[0].root, small[0].root, rtol=1e-10, atol=1e-12)
    for name, stats in whole[0].layers.items():
        assert torch.allclose(stats.cross, small[0].layers[name].cross, rtol=1e-10, atol=1e-12)
        assert torch.allclose(stats.counts, small[0].layers[name].counts, rtol=1e-10, atol=1e-12)


def test_the_m_step_sees_no_rows():
    for num_rows in (50, 500):
        model, x = encoder(num_rows=num_rows)
        start = spectral_start(model.layers(), model.root_layer(), x)
        statistics, _, _ = LayeredSteps.build(model, x).e_step(start)
        sizes = {
            tuple(v.shape)
            for s in statistics.layers.values()
            for v in (s.counts, s.cross, s.configurations)
        }
        sizes.add(tuple(statistics.root.shape))
        assert all(num_rows not in size for size in sizes)


def test_one_seed_one_answer():
    model, x = encoder(Bernoulli())
    method = replace(QUICK, max_iterations=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        first, second, other = (
            fit(model, x, method, num_restarts=3, seed=seed) for seed in (4, 4, 5)
        )
    assert torch.equal(first.restarts.objective, second.restarts.objective)
    assert all(torch.equal(first.params[k], second.params[k]) for k in first.params)
    assert not torch.equal(first.restarts.objective, other.restarts.objective)


def test_an_unfinished_fit_names_the_remedies():
    model, x = encoder()
    with pytest.warns(ConvergenceWarning, match=r"max_iterations.*tolerance.*latents.*start"):
        result = fit(model, x, EM(max_iterations=2))
    assert not result.converged
    assert any("max_iterations" in text for text in result.warnings)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"max_iterations": 0}, "max_iterations"),
        ({"tolerance": -1.0}, "tolerance"),
        ({"parameter_tolerance": 0.0}, "parameter_tolerance"),
        ({"chunk_elements": 1.5}, "chunk_elements"),
        ({"num_relaxed": -1}, "num_relaxed"),
        ({"num_inner": True}, "num_inner"),
    ],
)
def test_settings_are_checked(settings, name):
    with pytest.raises(ValueError, match=name):
        EM(**settings)


@pytest.mark.parametrize("stop_at", [3, 24])  # within the run under convex penalties, and after it
def test_an_interrupted_fit_resumes_bit_for_bit(tmp_path, monkeypatch, stop_at):
    model, x = encoder(num_rows=400, penalty=TruncatedLasso(3.0, 0.4))
    method = EM(tolerance=1e-10, num_relaxed=20)
    whole = fit(model, x, method, num_restarts=2)
    original, calls = LayeredSteps.m_step, []

    def interrupted(self, statistics, params):
        calls.append(1)
        if len(calls) == stop_at:
            raise KeyboardInterrupt
        return original(self, statistics, params)

    monkeypatch.setattr(LayeredSteps, "m_step", interrupted)
    path = tmp_path / "running" / "fit.safetensors"
    with pytest.raises(KeyboardInterrupt):
        fit(model, x, method, num_restarts=2, checkpoint=path)
    monkeypatch.setattr(LayeredSteps, "m_step", original)
    resumed = fit(model, x, method, num_restarts=2, checkpoint=path)
    assert torch.equal(resumed.trace.objective, whole.trace.objective)
    assert all(torch.equal(resumed.params[k], whole.params[k]) for k in whole.params)


@pytest.mark.parametrize("change", ["data", "method", "restarts", "model"])
def test_a_checkpoint_of_another_fit_is_refused(tmp_path, change):
    model, x = encoder()
    path = tmp_path / "fit.safetensors"
    fit(model, x, QUICK, checkpoint=path)
    other = {"method": QUICK, "num_restarts": 1}
    if change == "data":
        x = x + 0.001
    elif change == "method":
        other["method"] = replace(QUICK, tolerance=1e-6)
    elif change == "restarts":
        other["num_restarts"] = 2
    else:
        model = replace(model, bound=9.0)
    with pytest.raises(ValueError, match="another fit"):
        fit(model, x, checkpoint=path, **other)


def test_a_damaged_checkpoint_is_refused(tmp_path):
    model, x = encoder()
    path = tmp_path / "fit.safetensors"
    path.write_bytes(b"not tensors")
    with pytest.raises(ValueError, match="not a file written by this library"):
        fit(model, x, QUICK, checkpoint=path)


def test_a_finished_fit_is_read_from_its_checkpoint(tmp_path, monkeypatch):
    model, x = encoder()
    path = tmp_path / "fit.safetensors"
    first = fit(model, x, QUICK, num_restarts=2, checkpoint=path)
    monkeypatch.setattr(LayeredSteps, "m_step", lambda *_: pytest.fail("it was fitted again"))
    again = fit(model, x, QUICK, num_restarts=2, checkpoint=path)
    assert again.objective == first.objective
    assert again.converged
    assert torch.equal(again.trace.objective, first.trace.objective)
    assert not list(tmp_path.glob("*.partial"))


def test_a_relaxed_run_belongs_to_our_own_starts_alone():
    """Under a penalty that nothing outweighs, our own start loses every loading; a start that is
    given stays beyond the threshold.
    """
    model, x = encoder(penalty=TruncatedLasso(1e4, 1e-3))
    own = fit(model, x, QUICK)
    assert (own.params["loadings_1"] == 0).all()
    plain = fit(replace(model, penalty=None), x, QUICK)
    given = fit(model, x, QUICK, init=plain)
    assert (given.params["loadings_1"].abs() > 1e-3).sum() > 9
    program = Program(model, x)
    started_at = float(program.log_marginal(plain.params) + program.log_prior(plain.params))
    assert float(given.trace.objective[0]) == pytest.approx(started_at, rel=1e-10)
    none = fit(model, x, replace(QUICK, num_relaxed=0))
    assert (none.params["loadings_1"] != 0).any()


@pytest.mark.filterwarnings(
    "ignore::inference.BoundWarning"
)  # random starts end in poor optima, some on a bound
def test_each_restart_stops_by_its_own_changes():
    model, x = encoder()
    result = fit(model, x, replace(QUICK, max_iterations=400), init="random", num_restarts=4)
    restarts, trace = result.restarts, result.trace
    assert restarts.converged.all()
    assert len(set(restarts.num_iterations.tolist())) > 1
    assert result.num_iterations == len(trace.objective) == len(trace.log_likelihood)
    assert not trace.objective.isnan().any()
    assert float(trace.objective[-1] - trace.objective[-2]) < QUICK.tolerance * abs(
        float(trace.objective[-1])
    )
    steps = QUICK.steps(problem_of(model, x, 0))
    moved = steps.m_step(steps.e_step(restarts.params)[0], restarts.params)
    for name, value in restarts.params.items():
        assert float((moved[name] - value).abs().max()) < QUICK.parameter_tolerance, name


def test_a_fit_that_runs_out_of_iterations_reports_where_it_is():
    model, x = encoder()
    with pytest.warns(ConvergenceWarning, match="3 of 3 restarts did not converge in 5 iterations"):
        result = fit(model, x, EM(max_iterations=5), num_restarts=3)
    assert result.num_iterations == 5
    assert not result.restarts.converged.any()
    assert result.restarts.objective_left.isnan().all()  # five steps do not tell
    assert result.objective > float(
        result.trace.objective[-1]
    )  # of the parameters that are returned
    assert result.objective == pytest.approx(
        float(
            Program(model, x).log_marginal(result.params)
            + Program(model, x).log_prior(result.params)
        ),
        rel=1e-12,
    )


def test_a_fit_that_runs_out_of_iterations_says_what_is_left_to_gain():
    model, x = encoder()
    with pytest.warns(
        ConvergenceWarning,
        match=(
            r"in 20 iterations \(by its last steps, the best of them has about \d.* nats left to"
            r" gain"
        ),
    ) as caught:
        result = fit(
            model,
            x,
            EM(max_iterations=20, tolerance=1e-12, parameter_tolerance=1e-9),
            num_restarts=3,
        )
    left = float(result.restarts.objective_left[result.restarts.best])
    assert any(f"about {left:.1g} nats" in str(one.message) for one in caught)


def test_the_stopping_rule_reads_the_parameter_that_moves_most():
    """By hand: largest change over its tolerance or relative gain over its own, unless the gain is
    a thousandth of that.
    """
    method = EM(tolerance=1e-4, parameter_tolerance=1e-3)
    old = {name: torch.zeros(4, 2, dtype=torch.float64) for name in ("a", "b")}
    moved = torch.tensor([[0.0, -4e-3], [0.0, 0.0], [0.0, -4e-3], [0.0, 0.0]]).double()
    new = {"a": moved, "b": old["b"] + torch.tensor([5e-4, 0.0])}
    before = torch.full((4,), -10.0, dtype=torch.float64)
    gains = torch.tensor([2e-4, 2e-3, 4e-8, 2e-4]).double()
    objective = before + gains
    relative = gains / -objective / 1e-4
    rest = relative.new_tensor([4.0, 0.0, 0.0, 0.5])  # of the parameters
    expected = torch.maximum(rest, relative * torch.tensor([0.0, 1.0, 1e3, 0.0]))
    torch.testing.assert_close(method.gap(old, new, before, objective), expected)
    ahead = method.gap(old, new, before, objective, extrapolated=True)
    torch.testing.assert_close(ahead, expected)
    # single precision: a small gain of an extrapolated run tells nothing
    old, new = ({name: value.float() for name, value in part.items()} for part in (old, new))
    fine = replace(method, tolerance=1e-5)
    rest = relative.new_tensor([4.0, 0.0, 4.0, 0.0])
    expected = torch.maximum(rest, 10 * relative * torch.tensor([0.0, 1.0, 0.0, 1.0]))
    torch.testing.assert_close(fine.gap(old, new, before, objective, extrapolated=True), expected)


def test_what_is_left_is_the_rest_of_a_geometric_series():
    """Objectives -c q^t for t < T: parameters are a step further, so c q^T is left."""
    rates = torch.tensor([0.9, 0.5, 0.9, 1.1, 0.9], dtype=torch.float64)
    history = -3 * rates ** torch.arange(12).unsqueeze(1)
    history[9:, 1] = math.nan  # has ended
    history[6:, 2] = math.nan  # too short a run to tell
    history[10, 4] = history[9, 4] - 1e-3  # does not rise throughout
    left = _left_by_steps(history)
    expected = 3 * rates ** torch.tensor([12, 9, 0, 0, 0])
    torch.testing.assert_close(left[:2], expected[:2])
    assert left[2:].isnan().all()
    torch.testing.assert_close(_left_by_steps(history[:7, :1]), 3 * rates[:1] ** 7)
    assert _left_by_steps(history[:6]).isnan().all()


def test_an_interrupt_says_itself_and_keeps_the_last_iteration(tmp_path, monkeypatch):
    """Every stage: between the writes of every 20 iterations, and where the last numbers are
    computed.
    """
    model, x = encoder()
    method = EM(tolerance=1e-300, parameter_tolerance=1e-300, max_iterations=33)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        whole = fit(model, x, method)
    path, original = tmp_path / "fit.safetensors", LayeredSteps.e_step
    for stop_at in (1, 7, 34):  # counted from where the last one stopped
        calls = []

        def interrupted(self, params, calls=calls, stop_at=stop_at):
            calls.append(1)
            if len(calls) == stop_at:
                raise KeyboardInterrupt
            return original(self, params)

        monkeypatch.setattr(LayeredSteps, "e_step", interrupted)
        if stop_at < 34:
            with pytest.raises(KeyboardInterrupt):
                fit(model, x, method, checkpoint=path)
    with pytest.warns(ConvergenceWarning, match="33 iterations"):
        resumed = fit(model, x, method, checkpoint=path)
    assert (
        len(calls) == 33 - 6 + 1
    )  # what was done is not done again; one more for the last numbers
    assert torch.equal(resumed.trace.objective, whole.trace.objective)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_leaves_the_last_state_on_disk(tmp_path, monkeypatch):
    path = tmp_path / "fit.safetensors"
    call = (
        "x = (torch.rand(3000, 24, generator=torch.Generator().manual_seed(0)) < 0.5).double()\n"
        "method = EM(tolerance=1e-300, parameter_tolerance=1e-300, max_iterations=10**6,"
        " acceleration=None)\n"  # would go on for a long time
        f"fit(DeepDiscreteEncoder(24, (6, 2)), x, method, checkpoint={str(path)!r})\n"
    )
    code = (
        "import signal, torch; from inference import EM, fit; from ppl_models import"
        " DeepDiscreteEncoder\n"
    )
    code += (
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n" + call
    )  # a shell ignores it in the background
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not path.exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    first = read_tensors(path)[1]["state"]["iteration"]
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in errors
    tensors, record = read_tensors(path)
    done = record["state"]["iteration"]
    assert done > first
    assert tensors["history"].shape == (done, 1)
    assert tensors["history"].diff(dim=0).min() > -1e-9 * tensors["history"].abs().max()

    def stop(self, statistics, params):
        raise KeyboardInterrupt

    monkeypatch.setattr(LayeredSteps, "m_step", stop)
    with pytest.raises(KeyboardInterrupt):
        exec(
            call, {"torch": torch, "EM": EM, "fit": fit, "DeepDiscreteEncoder": DeepDiscreteEncoder}
        )
    assert read_tensors(path)[1]["state"]["iteration"] == done  # another process goes on from there
