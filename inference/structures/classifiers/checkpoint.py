"""Where a training is, so that an interrupted one goes on from there."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from inference.programs.program import Params

DECAY = 0.2  # of the learning rate where nothing is gained any more


@dataclass(eq=False)
class Course:
    """R restarts after some epochs.

    Args:
        theta: weights of the networks, (P,); first, second: Adam's moments; step: steps taken.
        average, omega_average: averages of ``theta`` and ``omega`` over about the last epoch's
            steps.
        omega: logits of the weights, (R, C), and their moments; they stay at zero where weights are
            no parameters.
        best: objective of the best epoch, (R,), and its weights; last: of the last epoch.
        waited: epochs without a gain, (R,); decays: times the learning rate was cut, (R,);
            learning_rate, active: (R,).
        history, history_train: the objective, and the log-likelihood ratio of the training rows,
            (epochs, R).
        generator: state of the order of the rows.
    """

    theta: Tensor
    average: Tensor
    omega_average: Tensor
    first: Tensor
    second: Tensor
    omega: Tensor
    omega_first: Tensor
    omega_second: Tensor
    best: Tensor
    last: Tensor
    best_theta: Tensor
    best_omega: Tensor
    waited: Tensor
    decays: Tensor
    learning_rate: Tensor
    active: Tensor
    history: Tensor
    history_train: Tensor
    generator: Tensor
    step: int = 0

    @classmethod
    def begin(
        cls,
        theta: Tensor,
        start: Params,
        num_restarts: int,
        learning_rate: float,
        generator: Generator,
    ) -> Course:
        """Before the first epoch."""
        weights = start["weights"].to(theta.device)
        zero = torch.zeros(num_restarts, dtype=torch.float64)
        count = torch.zeros(num_restarts, dtype=torch.long)
        omega, none = weights.log(), torch.zeros_like(weights)
        return cls(
            theta.clone(),
            theta.clone(),
            omega.clone(),
            torch.zeros_like(theta),
            torch.zeros_like(theta),
            omega,
            none,
            none.clone(),
            zero - torch.inf,
            zero - torch.inf,
            theta.clone(),
            omega.clone(),
            count,
            count.clone(),
            zero + learning_rate,
            count == 0,
            zero.new_zeros(0, num_restarts),
            zero.new_zeros(0, num_restarts),
            generator.get_state(),
        )

    def to(self, like: Tensor) -> Course:
        """What networks work with on their device."""
        for name in (
            "theta",
            "average",
            "omega_average",
            "first",
            "second",
            "omega",
            "omega_first",
            "omega_second",
            "best_theta",
            "best_omega",
        ):
            setattr(self, name, getattr(self, name).to(like))
        return self

    def look(
        self,
        theta: Tensor,
        omega: Tensor,
        value: Tensor,
        of_training: Tensor,
        owner: Tensor,
        tolerance: float,
        patience: int | None,
        num_decays: int,
    ) -> None:
        """Take in the objective of every restart after an epoch: keep the best weights, slow down
        or stop those that gain no more.

        Args:
            theta: weights (P,); omega: (R, C); value: the objective, (R,); of_training: their
                log-likelihood, (R,).
            owner: restart of each entry of ``theta``.
            tolerance, patience, num_decays: what counts as a gain, and what is done without one, as
                in :class:`inference.TrainClassifiers`.
        """
        value = value.double().cpu()
        self.history = torch.cat([self.history, torch.where(self.active, value, torch.nan)[None]])
        self.history_train = torch.cat(
            [
                self.history_train,
                torch.where(self.active, of_training.double().cpu(), torch.nan)[None],
            ]
        )
        self.last = value
        gains = self.active & (value > self.best + tolerance)
        better = self.active & (value > self.best)
        self.best = torch.where(better, value, self.best)
        moved = better.to(owner.device)
        self.best_theta = torch.where(moved[owner], theta, self.best_theta)
        self.best_omega = torch.where(moved[:, None], omega, self.best_omega)
        if patience is None:
            return
        self.waited = torch.where(gains, 0, self.waited + 1)
        tired = self.active & (self.waited >= patience)
        self.active = self.active & ~(tired & (self.decays >= num_decays))
        self.decays = self.decays + tired.long()
        self.learning_rate = torch.where(tired, self.learning_rate * DECAY, self.learning_rate)
        self.waited = torch.where(tired, 0, self.waited)
