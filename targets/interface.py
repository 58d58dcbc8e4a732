"""What the compiler gets from every target: errors and executables.

Running a compiled model needs no more than this of the targets' side: nothing here imports xDSL.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dialects.strata.types import Array


class TargetError(Exception):
    """The machine or the options do not allow what is asked of a target; says what to do."""


class Executable(ABC):
    """A compiled model, ready to run."""

    input_names: list[str]
    output_names: list[str]
    takes_gpu_tensors: bool = False
    """Whether `run` takes torch tensors on the GPU as they are, and then returns such."""
    notes: Sequence[str] = ()
    """What a person should know of how the model runs, such as what the host decides."""

    @abstractmethod
    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Outputs in model order. Inputs are C-contiguous arrays of the model's dtypes.

        Raises ValueError, naming the input, for a wrong count, rank, dtype or contradicting sizes.
        """

    def run_alike(self, inputs: Sequence[Array]) -> list[Array]:
        """The same for inputs of the last run's shapes, types and devices, which go unchecked."""
        return self.run(inputs)

    def donate(self, inputs: Mapping[int, int]) -> Collection[int]:
        """Let outputs be computed in the memory of inputs (output -> input, by number).

        To be asked before the first run; these inputs must overlap no others. Which outputs will
        be: `run` returns the very inputs for them, if these are on the device and lie as kernels
        expect, and no longer what they held. The other outputs stay as they were.
        """
        del inputs
        return ()


Timer = Callable[[int], float]
"""The seconds that a call takes, on the average of so many in a row."""


def cpu_seconds(executable: Executable, inputs: Sequence[Array], calls: int) -> float:
    """CPU time of this process, with all that belongs to a call."""
    started = time.process_time()
    for _ in range(calls):
        executable.run(inputs)
    return (time.process_time() - started) / calls
