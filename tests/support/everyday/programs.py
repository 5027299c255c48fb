"""Twenty programs as people write them, in plain Pyro: indexed by latents, in torch's default
dtype, their items in plates of their own.

The forms are those of Pyro's tutorials, its folder of examples and its forum, and some that are too
common to have one page (the table in ``table.py`` says which); the words are ours. Where a
published prior has no mode (Beta(0.1, 0.9), a scale that may shrink to zero), one with a mode
stands in its place.
"""

from __future__ import annotations

from typing import Any

import pyro
import pyro.distributions as dist
import torch
import torch.nn.functional as F
from pyro import poutine
from pyro.ops.indexing import Vindex
from torch import Tensor

Data = dict[str, Tensor]


def gaussian_mixture(data: Tensor) -> None:
    weights = pyro.sample("weights", dist.Dirichlet(2 * torch.ones(2)))
    scale = pyro.sample("scale", dist.LogNormal(0.0, 2.0))
    with pyro.plate("components", 2):
        locs = pyro.sample("locs", dist.Normal(0.0, 10.0))
    with pyro.plate("data", len(data)):
        assignment = pyro.sample("assignment", dist.Categorical(weights))
        pyro.sample("obs", dist.Normal(locs[assignment], scale), obs=data)


STATES = 2


def _transitions(name: str, size: int) -> Tensor:
    return pyro.sample(name, dist.Dirichlet(0.9 * torch.eye(size) + 1.1).to_event(1))


def hmm_0(data: Data) -> None:
    """Sequences one after the other, in a plate that is a loop."""
    sequences, lengths = data["sequences"], data["lengths"]
    num_tones = sequences.shape[-1]
    probs_x = _transitions("probs_x", STATES)
    probs_y = pyro.sample("probs_y", dist.Beta(1.1, 1.9).expand([STATES, num_tones]).to_event(2))
    tones = pyro.plate("tones", num_tones, dim=-1)
    for i in pyro.plate("sequences", len(sequences)):
        x = 0
        for t in pyro.markov(range(int(lengths[i]))):
            x = pyro.sample(
                f"x_{i}_{t}", dist.Categorical(probs_x[x]), infer={"enumerate": "parallel"}
            )
            with tones:
                pyro.sample(
                    f"y_{i}_{t}", dist.Bernoulli(probs_y[x.squeeze(-1)]), obs=sequences[i, t]
                )


def hmm_1(data: Data) -> None:
    """Sequences side by side, masked after their ends."""
    sequences, lengths = data["sequences"], data["lengths"]
    num_sequences, max_length, num_tones = sequences.shape
    probs_x = _transitions("probs_x", STATES)
    probs_y = pyro.sample("probs_y", dist.Beta(1.1, 1.9).expand([STATES, num_tones]).to_event(2))
    tones = pyro.plate("tones", num_tones, dim=-1)
    with pyro.plate("sequences", num_sequences, dim=-2):
        x = 0
        for t in pyro.markov(range(max_length)):
            with poutine.mask(mask=(t < lengths).unsqueeze(-1)):
                x = pyro.sample(
                    f"x_{t}", dist.Categorical(probs_x[x]), infer={"enumerate": "parallel"}
                )
                with tones:
                    pyro.sample(
                        f"y_{t}", dist.Bernoulli(probs_y[x.squeeze(-1)]), obs=sequences[:, t]
                    )


def hmm_2(data: Data) -> None:
    """What is seen depends on what was seen before."""
    sequences, lengths = data["sequences"], data["lengths"]
    num_sequences, max_length, num_tones = sequences.shape
    probs_x = _transitions("probs_x", STATES)
    probs_y = pyro.sample("probs_y", dist.Beta(1.1, 1.9).expand([STATES, 2, num_tones]).to_event(3))
    tones_plate = pyro.plate("tones", num_tones, dim=-1)
    with pyro.plate("sequences", num_sequences, dim=-2):
        x, y = 0, 0
        for t in pyro.markov(range(max_length)):
            with poutine.mask(mask=(t < lengths).unsqueeze(-1)):
                x = pyro.sample(
                    f"x_{t}", dist.Categorical(probs_x[x]), infer={"enumerate": "parallel"}
                )
                with tones_plate as tones:
                    y = pyro.sample(
                        f"y_{t}", dist.Bernoulli(probs_y[x, y, tones]), obs=sequences[:, t]
                    ).long()


def hmm_3(data: Data) -> None:
    """Two hidden chains, which the data depend on together."""
    sequences, lengths = data["sequences"], data["lengths"]
    num_sequences, max_length, num_tones = sequences.shape
    probs_w, probs_x = _transitions("probs_w", STATES), _transitions("probs_x", STATES)
    probs_y = pyro.sample(
        "probs_y", dist.Beta(1.1, 1.9).expand([STATES, STATES, num_tones]).to_event(3)
    )
    tones_plate = pyro.plate("tones", num_tones, dim=-1)
    with pyro.plate("sequences", num_sequences, dim=-2):
        w, x = 0, 0
        for t in pyro.markov(range(max_length)):
            with poutine.mask(mask=(t < lengths).unsqueeze(-1)):
                w = pyro.sample(
                    f"w_{t}", dist.Categorical(probs_w[w]), infer={"enumerate": "parallel"}
                )
                x = pyro.sample(
                    f"x_{t}", dist.Categorical(probs_x[x]), infer={"enumerate": "parallel"}
                )
                with tones_plate as tones:
                    pyro.sample(f"y_{t}", dist.Bernoulli(probs_y[w, x, tones]), obs=sequences[:, t])


def nested_plates(data: Tensor) -> None:
    """One latent of everything, one a row, and a table of rows and columns that depends on both."""
    chance_a = pyro.sample("chance_a", dist.Beta(2.0, 2.0))
    chance_b = pyro.sample("chance_b", dist.Beta(2.0, 2.0).expand([2]).to_event(1))
    chance_d = pyro.sample("chance_d", dist.Beta(2.0, 2.0).expand([2]).to_event(1))
    a = pyro.sample("a", dist.Bernoulli(chance_a)).long()
    with pyro.plate("rows", data.shape[0], dim=-2):
        b = pyro.sample("b", dist.Bernoulli(chance_b[a])).long()
        with pyro.plate("columns", data.shape[1], dim=-1):
            pyro.sample("d", dist.Bernoulli(chance_d[b]), obs=data)


def capture_recapture(data: Tensor) -> None:
    """Animals caught or not on each occasion; one that was never caught is not followed yet, one
    that is dead is never caught.
    """
    num_animals, num_occasions = data.shape
    phi = pyro.sample("phi", dist.Beta(2.0, 2.0))
    rho = pyro.sample("rho", dist.Beta(2.0, 2.0))
    animals = pyro.plate("animals", num_animals, dim=-1)
    z = torch.ones(num_animals)
    followed = torch.zeros(num_animals).bool()
    for t in pyro.markov(range(num_occasions)):
        with animals, poutine.mask(mask=followed):
            alive = followed.float() * phi * z + (1 - followed.float())
            z = pyro.sample(f"z_{t}", dist.Bernoulli(alive), infer={"enumerate": "parallel"})
            pyro.sample(f"y_{t}", dist.Bernoulli(rho * z), obs=data[:, t])
        followed = followed | data[:, t].bool()


def zero_inflated_poisson(data: Tensor) -> None:
    gate = pyro.sample("gate", dist.Beta(1.0, 1.0))
    rate = pyro.sample("rate", dist.Gamma(2.0, 0.5))
    with pyro.plate("data", len(data)):
        never = pyro.sample("never", dist.Bernoulli(gate))
        pyro.sample(
            "count", dist.Poisson(torch.where(never == 1, torch.tensor(1e-6), rate)), obs=data
        )


TOPICS, VOCABULARY = 2, 5


def topics(data: Tensor) -> None:
    """Words (W, D) of documents: shares of topics a document, a topic a word."""
    num_words, num_documents = data.shape
    with pyro.plate("topics", TOPICS):
        topic_words = pyro.sample("topic_words", dist.Dirichlet(2 * torch.ones(VOCABULARY)))
    with pyro.plate("documents", num_documents):
        doc_topics = pyro.sample("doc_topics", dist.Dirichlet(2 * torch.ones(TOPICS)))
        with pyro.plate("words", num_words):
            topic = pyro.sample(
                "word_topics", dist.Categorical(doc_topics), infer={"enumerate": "parallel"}
            )
            pyro.sample("doc_words", dist.Categorical(topic_words[topic]), obs=data)


def change_point(data: Tensor) -> None:
    """Counts a year whose rate changes once."""
    num_years = len(data)
    early = pyro.sample("early", dist.Gamma(2.0, 1.0))
    late = pyro.sample("late", dist.Gamma(2.0, 1.0))
    change = pyro.sample("change", dist.Categorical(torch.ones(num_years) / num_years))
    with pyro.plate("years", num_years):
        rate = torch.where(torch.arange(num_years) < change, early, late)
        pyro.sample("accidents", dist.Poisson(rate), obs=data)


def mixture_of_lines(data: Data) -> None:
    """Two groups of rows, each with its own line and its own noise."""
    x, y = data["x"], data["y"]
    weights = pyro.sample("weights", dist.Dirichlet(torch.ones(2)))
    with pyro.plate("groups", 2):
        a = pyro.sample("a", dist.Normal(0.0, 10.0))
        b = pyro.sample("b", dist.Normal(0.0, 10.0))
        s = pyro.sample("s", dist.Gamma(2.0, 2.0))
    with pyro.plate("rows", len(y)):
        z = pyro.sample("group", dist.Categorical(weights))
        pyro.sample("y", dist.Normal(a[z] + b[z] * x, s[z]), obs=y)


def latent_classes(data: Tensor) -> None:
    shares = pyro.sample("shares", dist.Dirichlet(2 * torch.ones(2)))
    probs = pyro.sample("probs", dist.Beta(2.0, 2.0).expand([2, data.shape[1]]).to_event(2))
    with pyro.plate("persons", len(data)):
        group = pyro.sample("class", dist.Categorical(shares))
        pyro.sample("answers", dist.Bernoulli(probs[group]).to_event(1), obs=data)


CLASSES, ANNOTATORS = 3, 4


def dawid_skene(data: Data) -> None:
    """Annotators with a confusion table each; ``positions`` says who filled which column."""
    labels, positions = data["labels"], data["positions"]
    with pyro.plate("annotator", ANNOTATORS, dim=-2), pyro.plate("class", CLASSES):
        beta = pyro.sample("beta", dist.Dirichlet(1 + torch.ones(CLASSES)))
    pi = pyro.sample("pi", dist.Dirichlet(1 + torch.ones(CLASSES)))
    with pyro.plate("item", len(labels), dim=-2):
        c = pyro.sample("c", dist.Categorical(pi))
        with pyro.plate("position", labels.shape[1]):
            pyro.sample("y", dist.Categorical(Vindex(beta)[positions, c, :]), obs=labels)


def mace(data: Data) -> None:
    """Annotators who now and then do not look, and then answer as they like."""
    labels, positions = data["labels"], data["positions"]
    with pyro.plate("annotator", ANNOTATORS):
        epsilon = pyro.sample("epsilon", dist.Dirichlet(10 * torch.ones(CLASSES)))
        theta = pyro.sample("theta", dist.Beta(2.0, 2.0))
    with pyro.plate("item", len(labels), dim=-2):
        c = pyro.sample("c", dist.Categorical(torch.ones(CLASSES) / CLASSES))
        with pyro.plate("position", labels.shape[1]):
            s = pyro.sample("s", dist.Bernoulli(1 - theta[positions]))
            right = F.one_hot(c, CLASSES).double()
            pyro.sample(
                "y",
                dist.Categorical(torch.where(s[..., None] == 0, right, epsilon[positions])),
                obs=labels,
            )


def hierarchical_dawid_skene(data: Data) -> None:
    """Annotators who are alike: each one's table lies around a common one."""
    labels, positions = data["labels"], data["positions"]
    pi = pyro.sample("pi", dist.Dirichlet(1 + torch.ones(CLASSES)))
    with pyro.plate("class", CLASSES):
        zeta = pyro.sample("zeta", dist.Normal(0.0, 1.0).expand([CLASSES]).to_event(1))
        omega = pyro.sample("omega", dist.LogNormal(-1.0, 0.5))
        with pyro.plate("annotator", ANNOTATORS, dim=-2):
            raw = pyro.sample("raw", dist.Normal(0.0, 1.0).expand([CLASSES]).to_event(1))
    beta = zeta + omega[..., None] * raw  # (annotators, classes, classes)
    with pyro.plate("item", len(labels), dim=-2):
        c = pyro.sample("c", dist.Categorical(pi))
        with pyro.plate("position", labels.shape[1]):
            pyro.sample("y", dist.Categorical(logits=Vindex(beta)[positions, c, :]), obs=labels)


MOST_GROUPS = 4


def mix_weights(beta: Tensor) -> Tensor:
    left = (1 - beta).cumprod(-1)
    return F.pad(beta, (0, 1), value=1) * F.pad(left, (1, 0), value=1)


def dirichlet_process(data: Tensor) -> None:
    """Broken sticks, at most four of them."""
    with pyro.plate("sticks", MOST_GROUPS - 1):
        beta = pyro.sample("beta", dist.Beta(1.1, 1.5))
    with pyro.plate("groups", MOST_GROUPS):
        mu = pyro.sample("mu", dist.Normal(0.0, 5.0))
    with pyro.plate("data", len(data)):
        z = pyro.sample("z", dist.Categorical(mix_weights(beta)))
        pyro.sample("obs", dist.Normal(mu[z], 1.0), obs=data)


def rasch(data: Tensor) -> None:
    """Persons with an ability, items with a difficulty, each in a plate of its own."""
    persons, items = (
        pyro.plate("persons", data.shape[0], dim=-2),
        pyro.plate("items", data.shape[1], dim=-1),
    )
    with items:
        difficulty = pyro.sample("difficulty", dist.Normal(0.0, 2.0))
    with persons:
        ability = pyro.sample("ability", dist.Normal(0.0, 1.0))
        with items:
            pyro.sample("answer", dist.Bernoulli(logits=ability - difficulty), obs=data)


def eight_schools(data: Data) -> None:
    y, sigma = data["y"], data["sigma"]
    mu = pyro.sample("mu", dist.Normal(0.0, 10.0))
    tau = pyro.sample("tau", dist.HalfCauchy(10.0))
    with pyro.plate("schools", len(y)):
        eta = pyro.sample("eta", dist.Normal(0.0, 1.0))
        pyro.sample("effect", dist.Normal(mu + tau * eta, sigma), obs=y)


def line_with_outliers(data: Data) -> None:
    """A line, and now and then a point from anywhere."""
    x, y = data["x"], data["y"]
    share = pyro.sample("share", dist.Beta(1.5, 10.0))
    intercept = pyro.sample("intercept", dist.Normal(0.0, 10.0))
    slope = pyro.sample("slope", dist.Normal(0.0, 10.0))
    noise = pyro.sample("noise", dist.Gamma(2.0, 2.0))
    with pyro.plate("points", len(y)):
        outlier = pyro.sample("outlier", dist.Bernoulli(share))
        line = intercept + slope * x
        pyro.sample(
            "y",
            dist.Normal(
                torch.where(outlier == 1, torch.zeros(()), line),
                torch.where(outlier == 1, torch.tensor(10.0), noise),
            ),
            obs=y,
        )


def measurements_with_gaps(data: Any) -> None:
    """Two groups and three columns of a data frame, each of its own kind, with missing entries."""
    share = pyro.sample("share", dist.Beta(2.0, 2.0))
    with pyro.plate("groups", 2):
        height = pyro.sample("height_mean", dist.Normal(0.0, 10.0))
        visits = pyro.sample("visits_rate", dist.Gamma(2.0, 0.5))
        smokes = pyro.sample("smokes_chance", dist.Beta(2.0, 2.0))
    spread = pyro.sample("height_sd", dist.Gamma(2.0, 2.0))
    with pyro.plate("persons", len(data)):
        z = pyro.sample("group", dist.Bernoulli(share)).long()
        pyro.sample("height", dist.Normal(height[z], spread), obs=data["height"])
        pyro.sample("visits", dist.Poisson(visits[z]), obs=data["visits"])
        pyro.sample("smokes", dist.Bernoulli(smokes[z]), obs=data["smokes"])
