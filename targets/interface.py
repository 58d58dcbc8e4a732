"""What every target provides to the compiler: its errors and executables.

Running a compiled model needs nothing more from the targets, so nothing here imports xDSL.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")

if TYPE_CHECKING:
    from dialects.strata.types import Array
    from dialects.strata.weights import WeightStore


class TargetError(Exception):
    """The machine or the options do not allow a request to a target; says what to do."""


class RankError(TargetError):
    """Ranks could not exchange data; says which operation failed on which rank."""


class Executable(ABC):
    """A compiled model, ready to run."""

    input_names: list[str]
    output_names: list[str]
    takes_gpu_tensors: bool = False
    """Whether `run` accepts torch tensors on the GPU without a copy, and then returns such."""
    takes_addresses: bool = False
    """Whether there is `run_at`."""
    notes: Sequence[str] = ()
    """What a user should know about how the model runs, such as decisions made on the host."""

    @property
    def exchanges(self) -> Sequence[Any]:
        """The collective operations, in the order of the program; empty for one rank."""
        return ()

    @property
    def general(self) -> Executable:
        """The program that runs at any size, if this one also holds others for some sizes."""
        return self

    @abstractmethod
    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Outputs in model order. Inputs are C-contiguous arrays of the model's dtypes.

        Outputs are new memory, which they share neither with inputs nor with each other.

        Raises ValueError, naming the input, for a wrong count, rank or dtype, or for sizes that
        contradict each other.
        """

    def run_alike(self, inputs: Sequence[Array]) -> list[Array]:
        """Like `run`, for inputs with the shapes, dtypes and devices of the last run; unchecked."""
        return self.run(inputs)

    def run_at(
        self, shapes: tuple[tuple[int, ...], ...], addresses: list[int],
        make: Callable[[int, tuple[int, ...]], T], address: Callable[[T], int],
    ) -> list[T] | None:
        """Run on inputs at these addresses: C-contiguous arrays of these shapes; types unchecked.

        `shapes`: empty if all sizes of the model are constant. `make`: a new output by number and
        shape, and `address` where it lies. None for outputs that are too large for that, whose
        memory `run` reuses. Raises as `run`.
        """
        raise NotImplementedError

    def caller(
        self, makers: Sequence[Callable[[], T]], address: Callable[[T], int]
    ) -> Callable[[list[int]], list[T] | None]:
        """`run_at` as a function of addresses, for a model whose sizes are all constant.

        `makers`: for each output what makes a new one.
        """
        def make(number: int, shape: tuple[int, ...]) -> T:
            return makers[number]()

        return lambda addresses: self.run_at((), addresses, make, address)

    def with_weights(self, weights: WeightStore) -> Executable | None:
        """The same code with the weights of another store; None if the target cannot do that."""
        return None

    def donate(self, inputs: Mapping[int, int]) -> Collection[int]:
        """Let outputs be computed in the memory of inputs (output -> input, by number).

        To be called before the first run; the donated inputs must overlap no others. Returns the
        outputs for which that is possible. For those `run` returns the input itself, with new
        contents, if it is on the device and has the layout that kernels expect. Other outputs are
        computed as before.
        """
        return ()

    def share(self, other: Executable) -> None:
        """Use the constants of another program of the model where they are equal, to save memory.

        To be called before the first run.
        """
        return


Timer = Callable[[int], float]
"""Maps a number of consecutive calls to the average seconds per call."""


def cpu_seconds(executable: Executable, inputs: Sequence[Array], calls: int) -> float:
    """CPU seconds of this process per call, including all work around the kernels."""
    started = time.process_time()
    for _ in range(calls):
        executable.run(inputs)
    return (time.process_time() - started) / calls
