"""What every target provides to the compiler: its errors and executables.

Running a compiled model needs nothing more from the targets, so nothing here imports xDSL.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")
Shape = tuple[int, ...]

if TYPE_CHECKING:
    from dialects.strata.types import Array
    from dialects.strata.weights import WeightStore

    Lend = Callable[[Sequence[Any]], Array] | None
    """Lends memory to one output of a call with these inputs: an array of its shape and dtype. None
    for an output that is too small for that."""


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
    """Whether there is `caller`."""
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

    def caller(
        self, make: Callable[[Sequence[Shape], Sequence[Lend]],
                             Callable[[Sequence[T]], Iterable[T]]],
        address: Callable[[T], int], shape: Callable[[T], Shape], donated: Collection[int] = (),
    ) -> Callable[[Sequence[Any], Sequence[T]], list[T]]:
        """`run` as a function of C-contiguous arrays of another library; types unchecked.

        `make`: for the shapes of all outputs, and what lends memory to the large ones, what makes
        new outputs for inputs. `address` and `shape` of an array. `donated`: the numbers of inputs
        whose contents nobody needs after a call, and whose memory outputs may have. The function
        takes what decides the shapes of the inputs, such as the sizes among them, and the inputs.
        It raises as `run`.
        """
        raise NotImplementedError

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

    def spare(self, inputs: Collection[int]) -> Collection[int]:
        """Let `run` compute outputs in the memory of these inputs, whose contents nobody needs
        after a call, and which overlap nothing else.

        To be called before the first run. Returns the inputs that are then overwritten.
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
