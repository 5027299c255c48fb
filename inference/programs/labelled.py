r"""Labels of latents as observed factors of a program.

A label :math:`\ell_n` of a row is one more observation that depends on the row's latent alone. With
:math:`t_n(z) = \log p(\ell_n \mid z)`, a table of one number for each value of the latent,

.. math:: p(x, \ell, z) = p(x, z) \prod_n e^{t_n(z_n)},

so that every engine that sums, draws or differentiates the program's density takes labels in by the
factor :math:`t_n(z_n)` at the latent's own site. Of bits there is a table for each bit, of a chain
one for each step.

Source: J. Pearl (1988), Probabilistic Reasoning in Intelligent Systems, section 2.2.2 (virtual
evidence); X. Zhu and A. Goldberg (2009), doi:10.2200/S00196ED1V01Y200906AIM006 (mixtures).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyro
import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor

NEVER = -1e30  # the logarithm of what is impossible: a chance of nought times it is nought


class Labelled:
    """Program with an observed factor of the labels at each labelled latent.

    Args:
        model: the program; its other attributes are those of this one.
        tables: by latent site, log p(label | value) of every row, (*batch, *event, V).
    """

    def __init__(self, model: Callable[..., Any], tables: Mapping[str, Tensor]) -> None:
        self.model, self.tables = model, dict(tables)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "model" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.model, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _LabelFactors(self.tables):
            return self.model(*args, **kwargs)


class _LabelFactors(Messenger):
    """Add the factor of the labels behind each labelled latent, inside its plates."""

    def __init__(self, tables: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.tables = tables

    def _pyro_sample(self, msg: Any) -> None:
        table = self.tables.get(getattr(msg["fn"], "latent", ""))
        if table is not None and msg["is_observed"]:  # of a distribution that sums its latent out
            msg["fn"] = msg["fn"].with_labels(table)

    def _pyro_post_sample(self, msg: Any) -> None:
        if msg["name"] in self.tables:
            table, event_dim = self.tables[msg["name"]], msg["fn"].event_dim
            pyro.factor(f"labels of {msg['name']}", log_factor(table, msg["value"], event_dim))


def log_factor(table: Tensor, values: Tensor, event_dim: int = 0) -> Tensor:
    """Log p(label | value) of values (..., *batch, *event), summed over dims of an event.

    Args:
        table: (*batch, *event, V); values: 0, ..., V - 1, broadcastable to the table's dims.
        event_dim: number of dims of an event.
    """
    own = table.shape[:-1]
    places = [
        torch.arange(size, device=table.device).reshape((size,) + (1,) * (len(own) - 1 - dim))
        for dim, size in enumerate(own)
    ]
    found = table[(*places, values.long())]
    return found.sum(tuple(range(-event_dim, 0))) if event_dim else found
