r"""Wald tests of simple rules (all, any, additive) against saturated items.

A saturated item has a predictor :math:`\eta_c` of its own for each of the :math:`2^q` profiles c of
the q attributes that it asks for. Simpler rules are linear restrictions :math:`R f(\eta) = 0`:

============== ======================== ================================================= ==========
rule           f                        restrictions                                      parameters
============== ======================== ================================================= ==========
``"dina"``     :math:`\eta`             profiles that lack an attribute are all alike     2
``"dino"``     :math:`\eta`             profiles that have an attribute are all alike     2
``"additive"`` :math:`\eta`             no interaction (LLM; on the predictor's scale)    1 + q
``"acdm"``     :math:`P = \sigma(\eta)` no interaction of the chances (right-wrong items) 1 + q
``"rrum"``     :math:`\log P`           no interaction of their logarithms (likewise)     1 + q
============== ======================== ================================================= ==========

With C the item's block of the inverse of the information of all parameters (items and the
distribution of the attributes together) and :math:`G = R \, \partial f / \partial \eta`,

.. math:: W = (R f)^\top (G C G^\top)^{-1} R f

is about :math:`\chi^2` under the rule, with as many degrees of freedom as restrictions. Blocks of
the inverse that leave other items, or the distribution of the attributes, out understate C, and the
test then rejects too often. Where all or none of a profile's rows solve an item and nothing else
holds the chance (``bound=15.0`` asks for no prior), the data do not say how far out its predictor
lies, and where less than one row has a profile they do not say where it lies: restrictions that
need it are left out, and the degrees of freedom say so. Under a hierarchy
the profiles are those that it allows, and a rule that restricts none of their predictors is the
saturated one and has no test.

The suggestion is the rule with the fewest parameters among those that are not rejected, of these
the one with the largest p; the saturated rule where all are rejected. A rule that is kept is one
that these rows cannot tell from the saturated one, which with few rows is no proof.

Source: J. de la Torre and Y.-S. Lee (2013), doi:10.1111/jedm.12022; W. Ma, C. Iaconangelo and J. de
la Torre (2016), doi:10.1177/0146621615621717; M. Philipp, C. Strobl, J. de la Torre and A. Zeileis
(2018), doi:10.3102/1076998617719728 (the whole information).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.linalg import null_space
from scipy.stats import chi2
from torch import Tensor

from inference.base.frames import pd
from inference.fitting.record import FitRecord
from inference.inspection.attributes import (
    answers_of,
    holm,
    item_families,
    moments_of,
    profiles_of,
    refuse_penalty,
)
from inference.programs.curvature import generalised_inverse
from inference.structures.layers.attributes import AttributeStructure
from inference.uncertainty import observed_information
from ppl_models.parts.repr import counted, listed, shows_briefly
from ppl_models.parts.responses import Bernoulli, ResponseFamily
from ppl_models.parts.validation import check_number

# of a predictor on the scale of log-odds or of a log mean: a standard error of 4.5
LEAST_INFORMATION = 0.05
LEAST_ROWS = 1.0  # that have a profile and answered the item, expected
RANK_TOLERANCE = 1e-9


@dataclass(frozen=True)
class RuleTest:
    """One simpler rule of one item.

    Args:
        item, rule: names.
        statistic: W; degrees: its restrictions; p_value: of the rule; p_holm: corrected for all
            tests of the table. NaN where no restriction is left.
        num_parameters: of the rule.
    """

    item: str
    rule: str
    statistic: float
    degrees: int
    p_value: float
    p_holm: float
    num_parameters: int


@shows_briefly
@dataclass(frozen=True, eq=False)
class ItemRules:
    """Tests of simpler rules, and which to take.

    Args:
        items: J names.
        tests: of items with two attributes or more, rule by rule.
        rules: the suggestion, J names, for ``items=`` of the model; "additive" where an item asks
            for one attribute.
        level: at which a rule is rejected; corrected: whether by Holm's p-values.
    """

    items: tuple[str, ...]
    tests: tuple[RuleTest, ...]
    rules: tuple[str, ...]
    level: float
    corrected: bool

    @property
    def table(self) -> pd.DataFrame:
        """One line an item and rule."""
        frame = pd.DataFrame(
            [vars(test) for test in self.tests], columns=list(RuleTest.__dataclass_fields__)
        )
        chosen = dict(zip(self.items, self.rules, strict=True))
        frame["chosen"] = [chosen[test.item] == test.rule for test in self.tests]
        return frame.set_index(["item", "rule"])

    def text(self) -> str:
        """Findings in a sentence or two."""
        tested = {test.item for test in self.tests}
        if not tested:
            return "Every item asks for one attribute, and all rules are then the same."
        chosen = [rule for name, rule in zip(self.items, self.rules, strict=True) if name in tested]
        shown = ", ".join(
            f"{chosen.count(rule)} {rule}"
            for rule in dict.fromkeys(sorted(chosen, key=chosen.count, reverse=True))
        )
        return (
            f"Of {counted(len(tested), 'item')} with several attributes these rules are not"
            f" rejected at {self.level:g}: {shown}. The model with them is"
            " dataclasses.replace(fit.model, items=inference.inspection.item_rules(fit,"
            " data).rules)."
        )


def item_rules(
    fit: FitRecord, data: Any, level: float = 0.05, corrected: bool = False
) -> ItemRules:
    """Test simpler rules of saturated items by Wald tests, and suggest one for each item.

    Args:
        fit: of a :class:`~ppl_models.LatentAttributeModel` with ``items="saturated"``.
        data: the rows it was fitted to, (N, J).
        level: at which a rule is rejected.
        corrected: decide by p-values that are corrected for the number of tests in the table
            (Holm), not one by one.

    Raises:
        ValueError: for another model, more than fourteen attributes, an item with several
            attributes that is not saturated, a penalty, data that do not fit, a level that is none,
            or an estimate that is not at a maximum.
    """
    check_number("item_rules", "level", level, "lie in (0, 1)", above=0, below=1)
    structure, params, answers = answers_of(fit, data, "item_rules")
    layer = structure.layers[0]
    refuse_penalty(layer, "item_rules")
    cells = [_Cells.of(structure, j, answers.items[j]) for j in range(layer.num_children)]
    families = item_families(layer)
    found = observed_information(fit, data)
    place = {name: p for p, name in enumerate(found.names)}
    if given := [name for cell in cells for name in cell.names if name not in place]:
        raise ValueError(
            "item_rules: estimates of every intercept and loading were expected, and"
            f" {listed(given)} are known; fit without fixed values of the items"
        )
    # from predictors of cells to intercepts and loadings
    back = torch.eye(len(found.names), dtype=found.matrix.dtype)
    own = [torch.tensor([place[name] for name in cell.names]) for cell in cells]
    for cell, places in zip(cells, own, strict=True):
        back[places.unsqueeze(-1), places] = torch.linalg.inv(cell.features)
    matrix = back.mT @ found.matrix @ back
    known = torch.ones(len(matrix), dtype=torch.bool)
    profiles = profiles_of(structure, "item_rules")
    posterior = moments_of(structure, params, profiles).log_joint(answers).softmax(-1)
    often = (
        answers.mask if fit.row_weights is None else answers.mask * fit.row_weights.cpu()[:, None]
    )
    num_rows = often.to(posterior).mT @ posterior  # (J, C)
    for j, (family, cell, places) in enumerate(zip(families, cells, own, strict=True)):
        inside = (cell.profiles.unsqueeze(1) == profiles[:, cell.attributes]).all(-1)  # (L, C)
        known[places] = (inside * num_rows[j]).sum(-1) >= LEAST_ROWS
        if not family.is_linear:  # its predictor has a natural unit
            known[places] &= matrix.diagonal()[places] > LEAST_INFORMATION
    kept = known.nonzero().ravel()
    names = tuple(found.names[p] for p in kept.tolist())
    covariance = torch.full_like(matrix, torch.nan)
    covariance[kept.unsqueeze(-1), kept] = generalised_inverse(
        matrix[kept.unsqueeze(-1), kept], names
    )[0]
    raw: list[tuple[int, str, float, int, int]] = []
    for j, (cell, places) in enumerate(zip(cells, own, strict=True)):
        if cell.size > 1:
            eta = cell.features @ found.estimate[places]
            rules = _rules(families[j], cell.profiles, eta)
            for rule, (value, slope, restrictions) in rules.items():
                own_covariance = covariance[places.unsqueeze(-1), places]
                tested = _wald(restrictions, value, slope, own_covariance, known[places])
                num = 2 if rule in ("dina", "dino") else 1 + cell.size
                raw.append((j, rule, *tested, num))
    p_values = np.array([chi2.sf(statistic, degrees) for _, _, statistic, degrees, _ in raw])
    corrections = holm(p_values)
    tests = tuple(
        RuleTest(answers.items[j], rule, statistic, degrees, float(p), float(p_holm), num)
        for (j, rule, statistic, degrees, num), p, p_holm in zip(
            raw, p_values, corrections, strict=True
        )
    )
    chosen = ["additive" if cell.size == 1 else "saturated" for cell in cells]
    for j, name in enumerate(answers.items):
        left = [
            test
            for test in tests
            if test.item == name and (test.p_holm if corrected else test.p_value) >= level
        ]
        if left:
            chosen[j] = min(left, key=lambda test: (test.num_parameters, -test.p_value)).rule
    return ItemRules(answers.items, tests, tuple(chosen), level, corrected)


@dataclass(frozen=True, eq=False)
class _Cells:
    """Profiles that an item distinguishes, in lexicographic order.

    Args:
        attributes: q numbers; profiles: of these, (L, q); names: of the intercept and the loadings
            that the item uses.
        features: what these are multiplied by at each profile, (L, L).
    """

    attributes: Tensor
    profiles: Tensor
    names: tuple[str, ...]
    features: Tensor

    @property
    def size(self) -> int:
        """Number of attributes of the item."""
        return self.profiles.shape[1]

    @classmethod
    def of(cls, structure: AttributeStructure, j: int, item: str) -> _Cells:
        layer = structure.layers[0]
        if layer.edges is None or layer.graph is None:
            raise ValueError(
                "item_rules: a model with a Q-matrix was expected; refit fit.model.restricted([Q])"
            )
        asked, columns = layer.edges[j].nonzero().ravel(), layer.graph[j].nonzero().ravel()
        curved = any(j in group.items.tolist() for group in layer.curved)
        own = structure.allowed(asked.tolist())
        if len(columns) != len(own) - 1 or curved:
            raise ValueError(
                f"item_rules: simpler rules are tested against saturated items, and item {item!r}"
                " is not one; fit the model dataclasses.replace(model, items='saturated') and ask"
                " of that fit"
            )
        whole = own.new_zeros(len(own), layer.num_parents)
        whole[:, asked] = own
        features = torch.nn.functional.pad(layer.features(whole)[:, columns], (1, 0), value=1.0)
        names = (
            f"{layer.intercepts}[{j}]",
            *(f"{layer.loadings}[{j},{t}]" for t in columns.tolist()),
        )
        return cls(asked, own, names, features)


def _rules(
    family: ResponseFamily, cells: Tensor, eta: Tensor
) -> dict[str, tuple[Tensor, Tensor, Tensor]]:
    """f, its derivative by the predictor, and R by rule, of rules that restrict the cells."""
    one, eye = torch.ones_like(eta), torch.eye(len(eta), dtype=eta.dtype)
    design = torch.nn.functional.pad(cells, (1, 0), value=1.0).to(eta)
    interactions = torch.from_numpy(null_space(design.mT.numpy())).mT  # what no sum of effects has
    rules = {"dina": (eta, one, eye[1:-1] - eye[0]), "dino": (eta, one, eye[1:-1] - eye[-1])}
    rules["additive"] = (eta, one, interactions)
    if isinstance(family, Bernoulli):
        chance = torch.sigmoid(eta)
        rules["acdm"] = (chance, chance * (1 - chance), interactions)
        rules["rrum"] = (torch.nn.functional.logsigmoid(eta), 1 - chance, interactions)
    return {rule: found for rule, found in rules.items() if len(found[-1])}


def _wald(
    restrictions: Tensor, value: Tensor, slope: Tensor, covariance: Tensor, known: Tensor
) -> tuple[float, int]:
    """W and degrees of the restrictions that need no unknown cell; NaN and 0 for none."""
    if not bool(known.all()):
        values, vectors = torch.linalg.eigh(restrictions[:, ~known] @ restrictions[:, ~known].mT)
        restrictions = (
            vectors[:, values <= RANK_TOLERANCE * values[-1].clamp(min=1.0)].mT @ restrictions
        )
    if not len(restrictions):
        return float("nan"), 0
    moved = restrictions[:, known] * slope[known]
    spread = moved @ covariance[known][:, known] @ moved.mT
    gap = restrictions[:, known] @ value[known]
    return float(gap @ torch.linalg.solve(spread, gap)), len(restrictions)
