r"""Mean field by coordinate ascent for noisy-OR networks, row by row, of Buhai et al. (2020).

For each row anew (algorithm 2 of the paper): :math:`q(h) = \prod_i \mathrm{Bernoulli}(h_i; q_i)`
from :math:`q_i \sim U(.2, .8)`, five sweeps over the latents in a random order, each setting

.. math:: \mathrm{logit}\, q_i = \frac{1}{20} \sum_s \log \frac{p(h_i = 1, h_{-i}^s, x)}{p(h_i = 0,
    h_{-i}^s, x)}, \qquad h^s \sim q,

then one step of Adam on the mean gradient of :math:`\log p(h, x)` over 20 draws of h from q. It is
here to replicate table 3; the library's own engines for these networks are better and quicker.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor
from torch.nn.functional import logsigmoid, softplus

SWEEPS, DRAWS = 5, 20
LOW, HIGH = 0.2, 0.8  # of the guide's start
LEAST = 1e-10  # of a failure's negative logarithm


class MeanField:
    """Runs of the algorithm, R restarts side by side, each with its own order of rows and draws.

    Args:
        data: (N, J) of 0 and 1.
        prior, failure, leak: where they start, (R, m), (R, m, J), (R, J).
        rate: of Adam; seed: of orders and draws.
    """

    def __init__(
        self, data: Tensor, prior: Tensor, failure: Tensor, leak: Tensor, rate: float, seed: int
    ) -> None:
        self.data, self.generator = data, Generator().manual_seed(seed)
        self.values = [v.to(data).logit() for v in (prior, failure, 1 - leak)]
        self.adam = torch.optim.Adam(self.values, rate, maximize=True)

    def epoch(self) -> None:
        """One pass over the rows: an update a row."""
        order = torch.rand(len(self.values[0]), len(self.data), generator=self.generator).argsort(1)
        for place in range(len(self.data)):
            self.update(self.data[order[:, place]].unsqueeze(1))

    def update(self, rows: Tensor) -> None:
        """A step on rows (R, B, J)."""
        prior, failure, off = self.values
        latents = self.draws(self.guide(rows))  # (R, B, S, m)
        leak, weights = self.failures()
        eta = leak[:, None, None] + latents @ weights[:, None]
        slope = rows.unsqueeze(2) / -torch.expm1(-eta) - 1  # d log p / d eta
        num = latents.shape[1] * latents.shape[2]
        flat, by_item = latents.flatten(1, 2), slope.flatten(1, 2)
        self.values[0].grad = flat.mean(1) - prior.sigmoid()
        self.values[1].grad = -(flat.mT @ by_item) * (-failure).sigmoid() / num
        self.values[2].grad = -by_item.mean(1) * (-off).sigmoid()
        self.adam.step()

    def failures(self) -> tuple[Tensor, Tensor]:
        """Negative logarithms of the leak's and the latents' failures, (R, J) and (R, m, J)."""
        _, failure, off = self.values
        return softplus(-off).clamp(min=LEAST), softplus(-failure).clamp(min=LEAST)

    def draws(self, guide: Tensor) -> Tensor:
        """Draws of the latents, (R, B, S, m), from the guide (R, B, m)."""
        chance = guide.unsqueeze(2).expand(-1, -1, DRAWS, -1)
        return (torch.rand(chance.shape, generator=self.generator) < chance).to(guide)

    def guide(self, rows: Tensor) -> Tensor:
        """The guide of rows (R, B, J) after five sweeps from its own start, (R, B, m)."""
        leak, weights = self.failures()
        num, size, items = rows.shape
        m = weights.shape[1]
        log_odds = self.values[0]
        guide = LOW + (HIGH - LOW) * torch.rand(num, size, m, generator=self.generator).to(rows)
        for _ in range(SWEEPS):
            order = torch.rand(num, size, m, generator=self.generator).argsort(-1)  # (R, B, m)
            uniform = torch.rand(m, num, size, DRAWS, m, generator=self.generator)
            for step in range(m):
                own = order[..., step]  # (R, B)
                latents = (uniform[step] < guide.unsqueeze(2)).to(rows)
                latents.scatter_(3, own[..., None, None].expand(-1, -1, DRAWS, 1), 0.0)
                added = weights.gather(1, own.unsqueeze(2).expand(-1, -1, items))  # (R, B, J)
                eta = leak[:, None, None] + latents @ weights[:, None]  # (R, B, S, J)
                # log(1 - e^(-eta - w)) - log(1 - e^(-eta))
                gain = torch.log(torch.expm1(-eta - added.unsqueeze(2)) / torch.expm1(-eta)).mean(2)
                change = (rows * gain - (1 - rows) * added).sum(-1) + log_odds.gather(1, own)
                guide.scatter_(2, own.unsqueeze(2), change.sigmoid().unsqueeze(2))
        return guide

    def elbo_rows(self, data: Tensor) -> Tensor:
        """ELBO of each row from 20 draws, (R, N)."""
        out = []
        for some in data.split(100):
            rows = some.expand(len(self.values[0]), *some.shape)
            guide = self.guide(rows)
            latents = self.draws(guide)
            leak, weights = self.failures()
            eta = leak[:, None, None] + latents @ weights[:, None]
            x = rows.unsqueeze(2)
            log_items = (x * torch.log(-torch.expm1(-eta)) - (1 - x) * eta).sum(-1)
            own, given = self.values[0][:, None, None], guide.unsqueeze(2)
            log_prior = (latents * own + logsigmoid(-own)).sum(-1)
            # a chance of exactly one has no draw that is zero
            log_guide = (latents.xlogy(given) + (1 - latents).xlogy(1 - given)).sum(-1)
            out.append((log_items + log_prior - log_guide).mean(2))
        return torch.cat(out, 1)

    def estimates(self) -> tuple[Tensor, Tensor, Tensor]:
        """Prior (R, m), failure (R, m, J) and leak (R, J)."""
        prior, failure, off = (value.sigmoid() for value in self.values)
        return prior, failure, 1 - off
