r"""Latent attributes with a known truth: a causal graph, and a test of answers.

The three structures have five attributes and twenty Normal items: Q is three identity matrices and
a tridiagonal one, intercepts are -1, loadings :math:`3 / \sum_k q_{jk}` (so that an item with all
of its attributes has mean 2), variances 1. Probabilities not shown are one half.

``"chain"``: 0 → 1 → 2 → 3 → 4
    P(1 | 0) = P(2 | 1) = .6 with the parent, .4 without; P(3 | 2) = P(4 | 3) = .4 and .6.
``"collider"``: 0 → 1, 2 → 4 ← 3
    P(1 | 0) = .6 and .4; P(4 | 2, 3) = .8 with both, .3 with 2, .1 with 3, .9 with none.
``"tree"``: 0 → 1, 0 → 2, 1 → 3, 1 → 4
    P(1 | 0) = P(3 | 1) = .6 and .4; P(2 | 0) = P(4 | 1) = .4 and .6.
``"unfaithful"``: as ``"collider"``
    P(4 | 2, 3) = .7 with both: 2 and 4 are then independent though 2 causes 4.

Source: "Causal Discovery for latent attributes", manuscript of 26 November 2024, section 4.1 (edges
read from the conditionals). The test is ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ppl_models.descriptions.dag import Dag
from ppl_models.descriptions.higher_order import HigherOrder
from ppl_models.descriptions.layers import GeneralizedLinearLayer
from ppl_models.latent_attributes import RULES, LatentAttributeModel
from ppl_models.parts.distributions import binary_configurations
from ppl_models.parts.repr import shows_briefly
from ppl_models.parts.responses import Normal
from ppl_models.parts.validation import Seed, as_seed, check_size, is_number

Edges = tuple[tuple[int, int], ...]
STRUCTURES: dict[
    str, tuple[Edges, tuple[tuple[float, ...], ...]]
] = {  # edges; each attribute given the states of its parents
    "chain": (
        ((0, 1), (1, 2), (2, 3), (3, 4)),
        ((0.5,), (0.4, 0.6), (0.4, 0.6), (0.6, 0.4), (0.6, 0.4)),
    ),
    "collider": (
        ((0, 1), (2, 4), (3, 4)),
        ((0.5,), (0.4, 0.6), (0.5,), (0.5,), (0.9, 0.1, 0.3, 0.8)),
    ),
    "tree": (
        ((0, 1), (0, 2), (1, 3), (1, 4)),
        ((0.5,), (0.4, 0.6), (0.6, 0.4), (0.4, 0.6), (0.6, 0.4)),
    ),
    "unfaithful": (
        ((0, 1), (2, 4), (3, 4)),
        ((0.5,), (0.4, 0.6), (0.5,), (0.5,), (0.9, 0.1, 0.3, 0.7)),
    ),
}
INTERCEPT, EFFECT = -1.0, 3.0
MIXED = "mixed"
ERRORS = (0.05, 0.25)  # guessing and slipping of the test
DIFFICULTIES, SLOPE = (
    (1.0, -1.0),
    1.5,
)  # of its attributes, from the easiest to the hardest, given the trait


@shows_briefly
@dataclass(frozen=True, eq=False)
class AttributeDesign:
    """Simulation design: a model of latent attributes with its true parameters.

    Args:
        model: the program, with a saturated root, and Bernoulli or Normal items.
        params: the truth by site name, float64; ``profiles`` is the table that causal discovery
            starts from.
        edges: (cause, effect) among the attributes, numbered from 0; None where no graph was used.
    """

    model: LatentAttributeModel
    params: dict[str, Tensor]
    edges: Edges | None

    def draw(self, num_rows: int, seed: Seed = 0, missing: float = 0.0) -> tuple[Tensor, Tensor]:
        """Draw items (num_rows, J), NaN where missing, and attributes (num_rows, K).

        Args:
            num_rows: N.
            seed: of everything random.
            missing: share of the answers that are left out, at random; every row and column keeps
                one.

        Raises:
            ValueError: if num_rows is not a positive integer or missing is not a share below 1.
        """
        seed = as_seed("draw", seed)
        check_size("AttributeDesign.draw", "num_rows", num_rows)
        if not (is_number(missing) and 0 <= missing < 1):
            raise ValueError(
                f"AttributeDesign.draw: missing must be a share from 0 to below 1, got {missing!r}"
            )
        generator = torch.Generator().manual_seed(seed)
        places = torch.multinomial(
            self.params["profiles"], num_rows, replacement=True, generator=generator
        )
        attributes = binary_configurations(len(self.model.q_matrix[0]))[places]
        mean = self.model.expected_responses(self.params, attributes)  # (N, J)
        if "dispersion" in self.params:
            noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype)
            items = mean + self.params["dispersion"].sqrt() * noise
        else:
            items = (torch.rand(mean.shape, generator=generator, dtype=mean.dtype) < mean).to(mean)
        gone = torch.rand(items.shape, generator=generator) < missing
        rows, columns = items.shape
        gone[torch.arange(rows), torch.arange(rows) % columns] = False
        gone[torch.arange(columns) % rows, torch.arange(columns)] = False
        return items.masked_fill(gone, math.nan), attributes


def causal_attributes(structure: str) -> AttributeDesign:
    """Design of five attributes under one of the graphs above, with twenty Normal items.

    Args:
        structure: ``"chain"``, ``"collider"``, ``"tree"`` or ``"unfaithful"``.

    Raises:
        ValueError: for another structure.
    """
    if structure not in STRUCTURES:
        raise ValueError(
            f"causal_attributes: structure must be one of {', '.join(map(repr, STRUCTURES))}, got"
            f" {structure!r}"
        )
    edges, tables = STRUCTURES[structure]
    size = len(tables)
    root = Dag(edges).root("attributes", size)
    conditionals = torch.tensor(
        [chance for table in tables for chance in table], dtype=torch.float64
    )
    profiles = (
        root.distribution({"conditionals": conditionals})
        .log_prob(binary_configurations(size))
        .exp()
    )
    eye = torch.eye(size)
    place = torch.arange(size)
    band = ((place[:, None] - place).abs() <= 1).to(eye)
    q_matrix = torch.cat([eye, eye, eye, band]).long()
    model = LatentAttributeModel(q_matrix, Normal())
    loadings = EFFECT * q_matrix.double() / q_matrix.double().sum(-1, keepdim=True)
    params = {
        "profiles": profiles,
        "loadings": loadings,
        "intercepts": torch.full((len(q_matrix),), INTERCEPT, dtype=torch.float64),
        "dispersion": torch.ones(len(q_matrix), dtype=torch.float64),
    }
    return AttributeDesign(model, params, edges)


def mastery_test(
    num_items: int = 30, num_attributes: int = 5, rule: str = "dina", seed: Seed = 0
) -> AttributeDesign:
    """Design of a realistic test: correlated skills, items that require one to three.

    Answers are right or wrong.

    The first 2 K items ask for one attribute each, the others for two or three drawn at random.
    Guessing and slipping are uniform on [.05, .25]; between the two ends the features of an item
    share its effect evenly, on the scale of its rule. Attributes depend on a trait, slopes 1.5,
    intercepts from 1 (easiest) to -1.

    Args:
        num_items: J, at least 2 K.
        num_attributes: K, from 3 to 14.
        rule: of the items, as in :class:`~ppl_models.LatentAttributeModel`; ``"mixed"`` draws one
            of all of them for each item.
        seed: of the items.

    Raises:
        ValueError: for sizes outside these limits, or a rule that there is none of.
    """
    seed = as_seed("mastery_test", seed)
    check_size("mastery_test", "num_attributes", num_attributes, 3)
    check_size(
        "mastery_test",
        "num_items",
        num_items,
        2 * num_attributes,
        f"an integer of at least 2 num_attributes = {2 * num_attributes}",
    )
    if rule not in (*RULES, MIXED):
        raise ValueError(
            f"mastery_test: rule must be one of {', '.join(map(repr, (*RULES, MIXED)))}, got"
            f" {rule!r}"
        )
    generator = torch.Generator().manual_seed(seed)
    eye = torch.eye(num_attributes, dtype=torch.long)
    rows = [eye, eye]
    for _ in range(num_items - 2 * num_attributes):
        asked = 2 + int(torch.randint(0, 2, (1,), generator=generator))
        rows.append(
            eye[torch.randperm(num_attributes, generator=generator)[:asked]].sum(0, keepdim=True)
        )
    least, most = ERRORS
    guess, slip = (
        least + (most - least) * torch.rand(2, num_items, generator=generator, dtype=torch.float64)
    ).unbind(0)
    rules = [
        list(RULES)[int(place)]
        for place in torch.randint(0, len(RULES), (num_items,), generator=generator)
    ]
    model = LatentAttributeModel(torch.cat(rows), items=rules if rule == MIXED else rule)
    trait = HigherOrder().root("attributes", num_attributes)
    root_params = {
        "trait_slopes": torch.full((num_attributes,), SLOPE, dtype=torch.float64),
        "trait_intercepts": torch.linspace(*DIFFICULTIES, num_attributes, dtype=torch.float64),
    }
    intercepts, loadings = _between_ends(model.layers()[0], guess, slip)
    params = {
        "profiles": trait.distribution(root_params)
        .log_prob(binary_configurations(num_attributes))
        .exp(),
        "loadings": loadings,
        "intercepts": intercepts,
    }
    return AttributeDesign(model, params, None)


def _between_ends(
    layer: GeneralizedLinearLayer, guess: Tensor, slip: Tensor
) -> tuple[Tensor, Tensor]:
    """Intercepts (J,) and loadings (J, T) of items with these chances at both ends.

    Their features count alike in between.
    """
    uses = (torch.ones(0) if layer.graph is None else layer.graph).double()
    intercepts = torch.logit(guess)
    share = (torch.logit(1 - slip) - torch.logit(guess)) / uses.sum(-1)
    for group in layer.curved:  # on the scale of the chance: parts of the whole, or factors
        g, s, size = guess[group.items], slip[group.items], len(group.singles)
        factor = (g / (1 - s)) ** (1 / size)
        adds = group.curve == "acdm"
        intercepts[group.items] = (g / s).log() if adds else torch.logit(1 - s)
        share[group.items] = ((1 - s - g) / (s * size)).log() if adds else -torch.logit(factor)
    return intercepts, share.unsqueeze(-1) * uses
