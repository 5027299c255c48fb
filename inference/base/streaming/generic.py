"""Row blocks for user programs, with a check that rows are conditionally independent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from inference.base.streaming.processes import Processes
from inference.programs.arguments import Call
from inference.programs.data import checked
from inference.programs.global_state import quiet
from inference.programs.program import Program
from inference.programs.restarts import inner_points
from inference.programs.validate import check_program
from ppl_models.data.tables import (
    Columns,
    as_columns,
    as_tensors,
    first_tensor,
    floating_dtype,
    map_tensors,
    row_data,
)

Look = Callable[[Program], None]
TRIAL_ROWS = 64


class ProgramRows:
    """Row blocks of a user's program, checked by a run on the first of them.

    A fit in blocks adds up log-likelihoods, which is right only if rows are independent given the
    parameters, and parameters and their priors the same whatever the rows. A program that takes a
    mean of its rows, counts their groups, or observes something outside the plate over rows, is
    refused.

    Args:
        model: the program.
        look: what else to refuse, given the program of the first rows.
    """

    def __init__(self, model: Callable[..., Any], look: Look | None) -> None:
        self.model, self.look = model, look
        self.by_name: bool | None = (
            None  # whether the program reads columns by their names; None before it was run
        )
        self.dtypes: dict[str, torch.dtype] = {}  # of every tensor, wide enough for all blocks
        self.sites = ""  # what the program has, in words
        self.names: tuple[str, ...] = ()

    def check_data(self, block: Any, for_fit: bool) -> tuple[Any, tuple[str, ...]]:
        """Convert a part of the rows to tensors after a run of the program on it.

        Raises:
            ValueError: for rows that the program cannot take, or that it takes for more than rows.
        """
        if for_fit:
            return self.taken(block), self.names
        is_first = self.by_name is None
        if is_first:
            data, self.names = checked(self.model, block)
            if not isinstance(data, Tensor | Columns | dict) or not row_data(data):
                raise ValueError(
                    "RowBlocks: a program that takes a tensor, or reads columns by their names,"
                    f" was expected, one entry a row in each; this one wants {type(data).__name__}:"
                    " fit(model, blocks.sample(20_000)) fits some of the rows"
                )
            self.by_name = isinstance(data, Columns)
        else:
            data = self._tensors(block)
        program = Program(self.model, data)
        check_program(program)
        if is_first:
            if self.look is not None:
                self.look(program)
            self.sites = _sites(program)
            self._refuse_sums(program)
        self._same_sites(program)
        for name, dtype in _dtypes(data).items():
            self.dtypes[name] = torch.promote_types(self.dtypes.get(name, dtype), dtype)
        return data, self.names

    def taken(self, block: Any) -> Any:
        """Convert a block to the program's tensors, in the dtypes of all blocks."""
        data = self._tensors(block)
        if isinstance(data, Tensor):
            return data.to(self.dtypes[""])
        # a column of text somewhere, which is not read, is none
        cast = {name: data[name].to(dtype) for name, dtype in self.dtypes.items() if name in data}
        return Columns(cast) if isinstance(data, Columns) else cast

    def agree(self, processes: Processes) -> None:
        """Merge the findings of all processes.

        Raises:
            ValueError: for processes whose rows give the program other sites.
        """
        if processes.group is None:
            return
        processes.agree(
            "what the program makes of its rows (parameters, their shapes, values of latents)",
            f"{self.sites} {self.by_name}",
        )
        for other in processes.gathered(self.dtypes):
            for name, dtype in other.items():
                self.dtypes[name] = torch.promote_types(self.dtypes[name], dtype)

    def _tensors(self, block: Any) -> Any:
        if isinstance(self.model, Call):
            block = self.model.laid_out(block)
        return as_columns(block) if self.by_name else as_tensors(block)

    def _same_sites(self, program: Program) -> None:
        sites = _sites(program)
        if sites != self.sites:
            raise ValueError(
                "RowBlocks: a program with the same parameters and latents whatever its rows was"
                f" expected, but the first rows make it {self.sites}, others {sites}: give sizes as"
                " numbers, and not by what some of the rows hold (such as data.max() + 1)"
            )

    def _refuse_sums(self, program: Program) -> None:
        """Refuse log-likelihoods that are no sums over rows, and priors that depend on rows."""
        table = program.args[0]
        count = min(TRIAL_ROWS, len(first_tensor(table)))
        if count < 2:
            return
        parts = [slice(0, count), slice(0, 1), slice(1, count)]
        programs = []
        for part in parts:
            try:
                programs.append(
                    Program(self.model, map_tensors(lambda x, part=part: x[part], table))  # type: ignore[misc]
                )
            except Exception as error:
                raise ValueError(
                    "RowBlocks: a program that runs with any number of rows was expected, and with"
                    f" {part.stop - part.start:,} of them this one does not: {error}. Take the size"
                    " of the plate from the data, as in pyro.plate('rows', len(data))"
                ) from error
            self._same_sites(programs[-1])
        with torch.no_grad(), quiet():
            points = inner_points(program)
            whole, *others = (
                [part.log_marginal(points), part.log_prior(points)] for part in programs
            )
        near = 1e-8 if floating_dtype(table) == torch.float64 else 1e-3
        added = others[0][0] + others[1][0]
        if not torch.allclose(whole[0], added, rtol=near, atol=near, equal_nan=True):
            raise ValueError(
                "RowBlocks: a program whose rows are independent given its parameters was"
                f" expected, so that log-likelihoods of blocks add up, but that of {count} rows is"
                f" {float(whole[0][0]):.6g}, and the sum of those of its parts"
                f" {float(added[0]):.6g}: it takes something from all rows together (a mean, a"
                " count), or observes something outside the plate over rows. fit(model,"
                " blocks.sample(20_000)) fits some of the rows"
            )
        if any(
            not torch.allclose(whole[1], values[1], rtol=near, atol=near, equal_nan=True)
            for values in others
        ):
            raise ValueError(
                "RowBlocks: priors that do not depend on the rows were expected, but log-priors of"
                " the same parameters differ between parts of the rows: give numbers"
            )


def _sites(program: Program) -> str:
    parts = [
        f"parameter {site.name} {site.shape}" for site in program.sites if site.kind == "parameter"
    ]
    parts += [
        f"latent {site.name} of {site.num_values} values"
        for site in program.sites
        if site.kind == "latent"
    ]
    return ", ".join(parts)


def _dtypes(data: Any) -> dict[str, torch.dtype]:
    if isinstance(data, Tensor):
        return {"": data.dtype}
    names = data.keys()  # columns of a program are iterated by name too
    return {name: data[name].dtype for name in names}
