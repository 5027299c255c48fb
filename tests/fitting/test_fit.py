"""What fit() promises around its engines, and what a Fit answers about rows, against loops over every configuration."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.ops.indexing import Vindex
from torch.distributions import Bernoulli as Coin
from torch.distributions import LogNormal as TorchLogNormal
from torch.distributions import Normal as TorchNormal
from torch.distributions import Poisson as TorchPoisson

import inference.fitting.rows
from inference import EM, Fit, fit
from inference.base.checkpoint import read_tensors, write_tensors
from inference.base.steps import GenericSteps
from inference.fitting.fit import _start
from inference.fitting.problem import problem_of
from inference.fitting.record import Trace
from inference.programs.program import Program
from ppl_models import SCAD, Bernoulli, Blocks, DeepDiscreteEncoder, LogNormal, Normal, Poisson, TruncatedLasso

pytestmark = pytest.mark.filterwarnings("ignore::inference.BoundWarning", "ignore::inference.ConvergenceWarning")
ANSWERS = (np.random.default_rng(0).random((60, 6)) < 0.5).astype(float)
SHORT = EM(max_iterations=4)
MIXED = Blocks((Bernoulli(), 2), (Normal(), 2), (LogNormal(), 1), (Poisson(), 1))
RESPONSES = [Bernoulli(), Poisson(), Normal(), LogNormal(), MIXED]


def name_of(response):
    return type(response).__name__


def table(response, num_rows=40, seed=0):
    """Rows of six items that the family allows."""
    rng = np.random.default_rng(seed)
    columns = []
    for family, part, _ in response.blocks(6):
        shape = (num_rows, part.stop - part.start)
        noise = rng.normal(size=shape)
        kinds = {"Normal": noise, "LogNormal": np.exp(noise), "Poisson": rng.poisson(2.0, shape), "Bernoulli": noise > 0}
        columns.append(kinds[name_of(family)].astype(float))
    return np.concatenate(columns, 1)


def elsewhere(result, seed=0):
    """The fit with parameters of a kind EM seldom returns: large and unalike."""
    generator = torch.Generator().manual_seed(seed)

    def noise(value):
        return torch.randn(value.shape, generator=generator, dtype=torch.float64)

    params = {name: 0.8 * noise(value) for name, value in result.params.items()}
    params["proportions"] = torch.sigmoid(params["proportions"])
    if "dispersion" in params:
        params["dispersion"] = params["dispersion"].exp()
    return dataclasses.replace(result, params=params)


@pytest.fixture(scope="module", params=RESPONSES, ids=name_of)
def two_layers(request):
    """A fit of layers 3 and 2, moved elsewhere, and rows with missing entries."""
    response = request.param
    x = table(response)
    result = elsewhere(fit(DeepDiscreteEncoder(6, (3, 2), response), x, EM(max_iterations=2)))
    x[[0, 0, 3, 5], [1, 4, 2, 5]] = np.nan
    x[7] = np.nan
    return result, x[:9]


def item_laws(response, eta, dispersion):
    """torch's own law of each item given its predictor."""
    laws = []
    for family, columns, part in response.blocks(6):
        for j in range(columns.start, columns.stop):
            sd = None if part.stop == part.start else dispersion[part.start + j - columns.start].sqrt()
            kinds = {
                "Bernoulli": lambda e=eta[j]: Coin(logits=e),
                "Poisson": lambda e=eta[j]: TorchPoisson(e.exp()),
                "Normal": lambda e=eta[j], s=sd: TorchNormal(e, s),
                "LogNormal": lambda e=eta[j], s=sd: TorchLogNormal(e, s),
            }
            laws.append(kinds[name_of(family)]())
    return laws


def by_hand(result, x):
    """log p(row, a_1, a_2) for all 8 x 4 configurations, and E[item | a_1], by plain loops."""
    p = result.params
    first = torch.tensor(list(itertools.product((0.0, 1.0), repeat=3)), dtype=torch.float64)
    second = torch.tensor(list(itertools.product((0.0, 1.0), repeat=2)), dtype=torch.float64)
    joint = torch.zeros(len(x), len(first), len(second), dtype=torch.float64)
    means = torch.zeros(len(first), 6, dtype=torch.float64)
    for c, a in enumerate(first):
        laws = item_laws(result.model.response, p["intercepts_1"] + p["loadings_1"] @ a, p.get("dispersion"))
        means[c] = torch.stack([law.mean for law in laws])
        rows = torch.zeros(len(x), dtype=torch.float64)
        for i, j in itertools.product(range(len(x)), range(6)):
            if not math.isnan(x[i, j]):
                rows[i] += laws[j].log_prob(torch.tensor(x[i, j], dtype=torch.float64))
        for d, b in enumerate(second):
            prior = Coin(logits=p["intercepts_2"] + p["loadings_2"] @ b).log_prob(a).sum()
            joint[:, c, d] = rows + prior + Coin(p["proportions"]).log_prob(b).sum()
    return joint, first, second, means


# ---------------------------------------------------------------------------- rows


def test_every_answer_equals_the_sum_over_configurations(two_layers):
    result, x = two_layers
    joint, first, second, means = by_hand(result, x)
    posterior = joint.flatten(1).softmax(1).reshape(joint.shape)
    latents, modes = result.posterior_latents(x), result.decode_latents(x)
    assert torch.allclose(result.log_likelihood_rows(x), joint.flatten(1).logsumexp(1), atol=1e-10)
    for name, marginal, values in (("latents_1", posterior.sum(2), first), ("latents_2", posterior.sum(1), second)):
        assert torch.allclose(latents[name], marginal @ values, atol=1e-10)
        assert torch.equal(modes[name], values[marginal.argmax(1)])
    assert torch.allclose(result.reconstruct(x), posterior.sum(2) @ means, atol=1e-9)


def test_a_row_without_entries_gives_the_prior(two_layers):
    result, _ = two_layers
    empty = np.full((1, 6), np.nan)
    joint, first, second, means = by_hand(result, empty)
    prior = joint[0].exp()
    assert float(prior.sum()) == pytest.approx(1.0, abs=1e-12)
    assert float(result.log_likelihood_rows(empty)) == pytest.approx(0.0, abs=1e-12)
    latents = result.posterior_latents(empty)
    assert torch.allclose(latents["latents_1"][0], prior.sum(1) @ first, atol=1e-12)
    assert torch.allclose(latents["latents_2"][0], result.params["proportions"], atol=1e-12)
    assert torch.allclose(result.reconstruct(empty)[0], prior.sum(1) @ means, atol=1e-10)


def test_a_row_alone_answers_as_among_others(two_layers, monkeypatch):
    result, x = two_layers
    whole = (result.posterior_latents(x)["latents_1"], result.reconstruct(x), result.log_likelihood_rows(x))
    rows = [(result.posterior_latents(r)["latents_1"], result.reconstruct(r), result.log_likelihood_rows(r)) for r in x[:, None]]
    monkeypatch.setattr(inference.fitting.rows, "CHUNK_ELEMENTS", 32)  # four rows of eight configurations at a time
    chunks = (result.posterior_latents(x)["latents_1"], result.reconstruct(x), result.log_likelihood_rows(x))
    for together, apart, chunked in zip(whole, zip(*rows, strict=True), chunks, strict=True):
        assert torch.allclose(together, torch.cat(apart), rtol=1e-12, atol=1e-12)
        assert torch.allclose(together, chunked, rtol=1e-12, atol=1e-12)


def test_a_mode_is_not_the_rounded_mean():
    """P(0, 0) = 0.44, P(1, 1) = 0.33, P(1, 0) = 0.22: the first is on with probability 0.56, and (0, 0) is the mode."""
    base = fit(DeepDiscreteEncoder(3, (2, 1)), ANSWERS[:, :3], SHORT)
    params = {name: torch.zeros_like(value) for name, value in base.params.items()}
    params["proportions"][0] = 0.56
    params["loadings_2"][:, 0] = torch.tensor([60.0, 30.0 + math.log(1.5)])
    params["intercepts_2"] = torch.tensor([-30.0, -30.0], dtype=torch.float64)
    result = dataclasses.replace(base, params=params)
    row = np.ones((1, 3))  # the items know nothing of the latents
    assert torch.allclose(result.posterior_latents(row)["latents_1"], torch.tensor([[0.56, 0.336]]).double(), atol=1e-9)
    assert result.decode_latents(row)["latents_1"].tolist() == [[0.0, 0.0]]


def test_shapes_of_what_a_fit_gives(two_layers):
    result, x = two_layers
    assert {k: tuple(v.shape) for k, v in result.posterior_latents(x).items()} == {"latents_1": (9, 3), "latents_2": (9, 2)}
    assert {k: tuple(v.shape) for k, v in result.decode_latents(x).items()} == {"latents_1": (9, 3), "latents_2": (9, 2)}
    draw = result.simulate(5)
    assert {k: tuple(v.shape) for k, v in draw.items()} == {"items": (5, 6), "latents_1": (5, 3), "latents_2": (5, 2)}
    result.model.check_data(draw["items"], for_fit=False)  # rows of the family


def test_simulated_rows_have_the_moments_of_the_fit(two_layers):
    result, _ = two_layers
    num_rows = 20_000
    draw = result.simulate(num_rows, seed=1)
    prior = result.posterior_latents(np.full((1, 6), np.nan))
    for name in ("latents_1", "latents_2"):
        p = prior[name][0]
        assert ((draw[name].mean(0) - p).abs() < 5 * (p * (1 - p) / num_rows).sqrt()).all()
    x = draw["items"]
    error = x.std(0) / math.sqrt(num_rows)
    if name_of(result.model.response) in ("Bernoulli", "Normal"):  # the others have heavy tails
        assert ((x.mean(0) - result.reconstruct(np.full((1, 6), np.nan))[0]).abs() < 5 * error).all()


def test_rows_far_from_the_fitted_ones_are_no_error():
    result = fit(DeepDiscreteEncoder(6, (2,), Normal()), table(Normal()), SHORT)
    assert torch.isfinite(result.log_likelihood_rows(np.full((2, 6), [[700.0], [701.0]]))).all()


def test_columns_in_another_order_are_refused():
    frame = pd.DataFrame(ANSWERS, columns=list("abcdef"))
    result = fit(DeepDiscreteEncoder(6, (2,)), frame, SHORT)
    with pytest.raises(ValueError, match=r"data: columns in the order of the fit.*'f', 'e'"):
        result.posterior_latents(frame[list("fedcba")])
    other_names = frame.set_axis([f"question {j}" for j in range(6)], axis=1)
    assert torch.equal(result.reconstruct(other_names), result.reconstruct(ANSWERS))


@pytest.mark.parametrize("ask", ["posterior_latents", "decode_latents", "log_likelihood_rows", "reconstruct"])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (ANSWERS[:, :5], "num_items = 6 columns were expected, got 5"),
        (ANSWERS[0], r"\(rows, items\)"),
        (ANSWERS + 1, "column '0'.*found 2"),
        (ANSWERS[:0], "at least one row"),
    ],
)
def test_rows_to_predict_for_are_checked(ask, data, message):
    result = fit(DeepDiscreteEncoder(6, (2,)), ANSWERS, SHORT)
    with pytest.raises(ValueError, match=message):
        getattr(result, ask)(data)


# ---------------------------------------------------------------------------- numbers


@pytest.mark.parametrize("response", RESPONSES, ids=name_of)
def test_parameters_are_counted_free_of_zeros(response):
    dispersed = response.num_dispersed(6)
    result = fit(DeepDiscreteEncoder(6, (3, 1), response), table(response), SHORT)
    assert result.num_parameters == 1 + 6 * (3 + 1) + 3 * (1 + 1) + dispersed
    params = {name: value.clone() for name, value in result.params.items()}
    params["loadings_1"][:4, 0] = 0.0
    params["loadings_2"][2, 0] = 0.0
    params["intercepts_1"][0] = 0.0  # an intercept counts whatever it is
    sparse = dataclasses.replace(result, params=params)
    assert sparse.num_parameters == result.num_parameters - 5
    assert sparse.bic == pytest.approx(-2 * sparse.log_likelihood + sparse.num_parameters * math.log(40), rel=1e-14)


def test_the_best_restart_is_the_one_reported():
    model = DeepDiscreteEncoder(6, (2,), bound=4.0)
    result = fit(model, ANSWERS, EM(max_iterations=15), init="random", num_restarts=6, seed=3)
    assert result.objective == float(result.restarts.objective.max())
    assert result.restarts.best == int(result.restarts.objective.argmax())
    assert len(set(result.restarts.objective.tolist())) == 6
    program = Program(model, torch.from_numpy(ANSWERS))
    own = {name: value[result.restarts.best] for name, value in result.restarts.params.items()}
    assert float(program.log_marginal(own)) == pytest.approx(result.log_likelihood, rel=1e-12)
    assert torch.allclose(program.log_marginal(result.restarts.params), result.restarts.log_likelihood, rtol=1e-12)


def test_latents_are_named_so_that_loadings_sum_to_a_positive_number():
    for seed in range(5):
        result = fit(DeepDiscreteEncoder(6, (3, 1)), ANSWERS, EM(max_iterations=10), init="random", seed=seed)
        assert (result.params["loadings_1"].sum(0) > 0).all()
        assert (result.params["loadings_2"].sum(0) > 0).all()
        assert result.log_likelihood == pytest.approx(float(result.log_likelihood_rows(ANSWERS).sum()), rel=1e-12)


def test_warnings_are_given_once_and_kept():
    frame = pd.DataFrame(ANSWERS, columns=list("abcdef")).assign(c=1.0)
    with pytest.warns(UserWarning, match=".") as caught:
        result = fit(DeepDiscreteEncoder(6, (1,)), frame, SHORT, num_restarts=2)
    assert tuple(str(w.message) for w in caught) == result.warnings
    assert any(text.endswith("one value only: c") for text in result.warnings)
    assert {Path(w.filename).name for w in caught} == {Path(__file__).name}  # they point at the caller


def test_the_callers_random_state_is_left_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    result = fit(DeepDiscreteEncoder(6, (2,)), ANSWERS, SHORT, num_restarts=2, seed=1)
    result.simulate(3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(6)
    again = fit(DeepDiscreteEncoder(6, (2,)), ANSWERS, SHORT, num_restarts=2, seed=1)
    assert torch.equal(again.restarts.objective, result.restarts.objective)
    assert len(pyro.get_param_store()) == 0
    assert torch.get_default_dtype() == torch.float32


def test_a_start_may_be_arrays_of_any_precision():
    model = DeepDiscreteEncoder(6, (2,))
    first = fit(model, ANSWERS, SHORT)
    arrays = {name: value.numpy() for name, value in first.params.items()}
    single = {name: value.float() for name, value in first.params.items()}
    ours, theirs, coarse = (fit(model, ANSWERS, SHORT, init=init) for init in (first, arrays, single))
    assert ours.objective == theirs.objective
    assert coarse.params["loadings_1"].dtype == torch.float64
    assert coarse.objective == pytest.approx(ours.objective, abs=1e-3)


def test_restarts_from_a_given_start_begin_there_and_nearby():
    model = DeepDiscreteEncoder(6, (2,))
    first = fit(model, ANSWERS, EM(max_iterations=300))
    problem = problem_of(model, ANSWERS, 0)
    start = _start(problem, first, 4)
    for name, value in first.params.items():
        assert torch.allclose(start[name][0], value, atol=1e-9)
        assert all((start[name][r] - value).abs().max() > 1e-3 for r in (1, 2, 3))
        assert all((start[name][r] - start[name][1]).abs().max() > 1e-3 for r in (2, 3))
    other = _start(dataclasses.replace(problem, seed=1), first, 4)
    assert not torch.equal(other["loadings_1"][1], start["loadings_1"][1])


def test_progress_is_shown_on_standard_error_only(capfd):
    fit(DeepDiscreteEncoder(6, (1,)), ANSWERS, SHORT, progress=True)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert "objective -" in shown.err
    fit(DeepDiscreteEncoder(6, (1,)), ANSWERS, SHORT)
    assert capfd.readouterr() == ("", "")


# ---------------------------------------------------------------------------- files


def test_a_model_with_every_setting_comes_back(tmp_path):
    graph = tuple((int(j % 3 == 0), 1, int(j % 2 == 0)) for j in range(6))
    penalty = SCAD.matching(TruncatedLasso(2.0, 0.3))
    model = DeepDiscreteEncoder(6, (3, 2), MIXED, penalty, (graph, None), 6.0)
    result = fit(model, table(MIXED), SHORT, num_restarts=2)
    odd = dataclasses.replace(
        result,
        log_likelihood=math.nan,
        objective=-math.inf,
        item_names=("ä", 'b"', "c\n", "", "e", "f"),
        draws={"loadings_1": torch.randn(2, 3, 6, 3)},
        trace=Trace("a/b.c", torch.zeros(0), torch.zeros(0)),
    )
    odd.save(tmp_path)
    again = Fit.load(tmp_path)
    assert again.model == model
    assert again.method == SHORT
    assert math.isnan(again.log_likelihood)
    assert again.objective == -math.inf
    assert again.item_names == odd.item_names
    assert again.warnings == odd.warnings
    assert torch.equal(again.draws["loadings_1"], odd.draws["loadings_1"])
    assert again.trace.objective.shape == (0,)
    assert all(torch.equal(again.restarts.params[k], v) for k, v in odd.restarts.params.items())
    x = table(MIXED)
    assert torch.equal(again.reconstruct(x), result.reconstruct(x))


@pytest.fixture
def saved(tmp_path):
    fit(DeepDiscreteEncoder(6, (2,)), ANSWERS, SHORT).save(tmp_path)
    tensors, record = read_tensors(tmp_path / "fit.safetensors")

    def load(change):
        change(record, tensors)
        write_tensors(tmp_path / "fit.safetensors", tensors, record)
        return Fit.load(tmp_path)

    return load


DAMAGE = {
    "a newer format": (lambda r, t: r.update(format=3), "format 2 was expected, got 3; a newer version"),
    "no format": (lambda r, t: r.update(format="2"), "format 2 was expected, got '2'$"),
    "no field": (lambda r, t: r.pop("seed"), "damaged.*seed"),
    "no tensor": (lambda r, t: t.pop("params.loadings_1"), "damaged.*params.loadings_1"),
    "unknown value": (lambda r, t: r.update(model={"what": 1}), "damaged"),
    "unknown module": (lambda r, t: r["model"].update(record="inference.nothing:Fit"), "unknown record type 'inference.nothing:Fit'"),
    "unknown name": (lambda r, t: r["model"].update(record="ppl_models:Encoder"), "unknown record type 'ppl_models:Encoder'"),
    "number as type": (lambda r, t: r["model"].update(record=3), "damaged"),
    "foreign field": (lambda r, t: r["model"]["fields"].update(__class__=1), "has no field '__class__'"),
    "lost field": (lambda r, t: r["model"]["fields"].pop("num_items"), "lacks the field 'num_items'"),
    "no dataclass": (lambda r, t: r["model"].update(record="inference:fit"), "unknown record type"),
    "attribute": (lambda r, t: r["model"].update(record="inference.fitting.fit:torch.save"), "not of this library"),
    "look-alike": (lambda r, t: r["model"].update(record="inference_evil:Fit"), "not of this library"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_fit_is_refused(saved, damage):
    change, message = DAMAGE[damage]
    with pytest.raises(ValueError, match=message):
        saved(change)


OLD = Path(__file__).parent.parent / "references" / "format_1"


@pytest.mark.parametrize("folder", sorted(OLD.iterdir()), ids=lambda folder: folder.name)
def test_fits_of_the_old_format_are_read(folder, tmp_path):
    """Files written before the modules moved: they name modules that are gone, and the same numbers come out."""
    data = dict(np.load(folder / "rows.npz"))
    expected = torch.from_numpy(data.pop("log_likelihood"))
    data = data["data"] if set(data) == {"data"} else {name: torch.from_numpy(value) for name, value in data.items()}
    result = Fit.load(folder)
    assert torch.allclose(result.log_likelihood_rows(data), expected, rtol=1e-10)
    result.save(tmp_path)
    again = Fit.load(tmp_path)
    assert (again.model, again.method) == (result.model, result.method)
    assert read_tensors(tmp_path / "fit.safetensors")[1]["format"] == 2


def test_a_newer_file_may_not_name_modules(saved):
    """Module paths are read from files of format 1 alone, and there from the table of what it could hold."""
    path = "ppl_models.deep_discrete_encoder:DeepDiscreteEncoder"
    with pytest.raises(ValueError, match="unknown record type"):
        saved(lambda record, tensors: record["model"].update(record=path))


def test_settings_added_later_take_their_defaults(saved):
    again = saved(lambda record, tensors: record["method"]["fields"].pop("num_inner"))
    assert again.method == SHORT


def test_what_has_no_place_in_a_file_is_refused(tmp_path):
    @dataclasses.dataclass(frozen=True)
    class Engine:
        factor: float = 1.0

    result = fit(DeepDiscreteEncoder(6, (2,)), ANSWERS, SHORT)
    with pytest.raises(ValueError, match="save: method holds a Engine"):
        dataclasses.replace(result, method=Engine()).save(tmp_path / "fit")
    assert not (tmp_path / "fit").exists()


# ---------------------------------------------------------------------------- programs of users


def mixture(data, num_rows=None):
    """Two classes of rows with six independent answers."""
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(2, dtype=torch.float64)))
    chance = pyro.sample("chance", dist.Beta(torch.ones(2, 6, dtype=torch.float64), 1.0).to_event(2))
    with pyro.plate("rows", num_rows or len(data)):
        group = pyro.sample("group", dist.Categorical(weights))
        pyro.sample("answers", dist.Bernoulli(Vindex(chance)[..., group, :]).to_event(1), obs=data)


def fixed_rows(data):
    mixture(data)


def test_a_users_program_is_saved_without_its_code(tmp_path):
    result = fit(mixture, ANSWERS, EM(max_iterations=3))
    result.save(tmp_path)
    assert "mixture" not in (tmp_path / "fit.json").read_text()
    with pytest.raises(ValueError, match=r"load\(path, model=...\)"):
        Fit.load(tmp_path)
    again = Fit.load(tmp_path, model=mixture)
    assert again.model is mixture
    for kind in (ANSWERS, torch.from_numpy(ANSWERS), pd.DataFrame(ANSWERS)):
        assert torch.allclose(again.log_likelihood_rows(kind), result.log_likelihood_rows(ANSWERS), rtol=1e-14)
    weights, chance = result.params["weights"], result.params["chance"]
    x = torch.from_numpy(ANSWERS)
    joint = weights.log() + torch.stack([Coin(p).log_prob(x).sum(1) for p in chance], 1)
    assert torch.allclose(result.posterior_latents(x)["group"], joint.softmax(1), atol=1e-12)
    assert torch.equal(result.decode_latents(x)["group"], joint.argmax(1))


def test_a_users_program_simulates_if_it_can_draw_rows():
    result = fit(mixture, ANSWERS, EM(max_iterations=3))
    assert result.simulate(7)["answers"].shape == (7, 6)
    with pytest.raises(ValueError, match="simulate.*num_rows"):
        dataclasses.replace(result, model=fixed_rows).simulate(7)


SOURCE = """
def make(scale):
    def program(data):
        weights = pyro.sample("weights", dist.Dirichlet({prior} * torch.ones(2, dtype=torch.float64)))
        rate = pyro.sample("rate", dist.Gamma(torch.full((2,), scale, dtype=torch.float64), 1.0).to_event(1))
        with pyro.plate("rows", len(data)):
            group = pyro.sample("group", dist.Categorical(weights))
            pyro.sample("count", dist.{family}(Vindex(rate)[..., group]), obs=data)
    return program
"""


def written(prior="1.0", family="Poisson", scale=1.5):
    """The program as another process would define it: a new object of the same source."""
    scope = {"pyro": pyro, "dist": dist, "torch": torch, "Vindex": Vindex}
    exec(SOURCE.format(prior=prior, family=family), scope)
    return scope["make"](scale)


def test_a_users_program_resumes_in_another_process(tmp_path, monkeypatch):
    """A function has another address there: only its code may tell whether it is the same."""
    counts = torch.from_numpy(np.random.default_rng(1).poisson([[1.0], [6.0]], (2, 20)).ravel().astype(float))
    method = EM(max_iterations=8)
    whole = fit(written(), counts, method)
    original, calls = GenericSteps.m_step, []

    def interrupted(self, statistics, params):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return original(self, statistics, params)

    monkeypatch.setattr(GenericSteps, "m_step", interrupted)
    path = tmp_path / "fit.safetensors"
    with pytest.raises(KeyboardInterrupt):
        fit(written(), counts, method, checkpoint=path)
    resumed = fit(written(), counts, method, checkpoint=path)
    assert len(calls) == 5 + 4  # the four iterations on disk are not done again
    assert torch.equal(resumed.trace.objective, whole.trace.objective)
    for other in (written(prior="2.0"), written(family="Exponential"), written(scale=2.5)):
        with pytest.raises(ValueError, match="another fit"):
            fit(other, counts, method, checkpoint=path)


@pytest.mark.parametrize(
    "other",
    [
        {"x": np.ones((3, 2)), "y": np.zeros(2)},  # the same bytes in another shape
        {"x": np.ones((2, 3), np.float32), "y": np.zeros(5, np.float32)},
    ],
)
def test_data_of_another_shape_is_another_fit(other):
    first = problem_of(mixture, {"x": np.ones((2, 3)), "y": np.zeros(2)}, 0)
    assert isinstance(first.data["x"], torch.Tensor)
    method, start = EM(), {"w": torch.zeros(1)}
    assert first.fingerprint(method, start) == first.fingerprint(method, dict(start))
    assert first.fingerprint(method, start) != problem_of(mixture, other, 0).fingerprint(method, start)
