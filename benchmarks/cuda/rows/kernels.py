"""One kernel, as a function of PyTorch: ours, and whoever else computes the same.

Ours takes the function as it is written. PyTorch runs it eagerly and compiled, and may have other
ways to the same result (`rivals`), such as a library's fused kernel.
"""

from __future__ import annotations

import gc
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from rows import Figures, Goal, Measure, Reached, Setting, milliseconds, xla
from rows.programs import (
    AUTO,
    EAGER,
    OURS,
    Compiled,
    allowed,
    empty_cache,
    inductor,
    off,
    ours,
    told,
    with_library,
)
from rows.timing import Call, device_times, synchronize, turn

Tensor = torch.Tensor
SMALL = 32
"""How long dims are with `--smoke`, at most."""
COPIED = 1 << 30
"""Bytes of the copy whose bandwidth is the ceiling: far more than caches hold."""
COPY = "copy"
XLA = "jax"


@dataclass(frozen=True)
class Spec:
    """A tensor of random numbers. `scale`: their standard deviation. `channels_last`: whether its
    memory is in that format of PyTorch; the shape is the same."""

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.bfloat16
    scale: float = 1.0
    channels_last: bool = False

    def make(self, seed: int, setting: Setting) -> Tensor:
        shape = [min(d, SMALL) for d in self.shape] if setting.smoke else self.shape
        device = "cpu" if setting.smoke else "cuda"
        source = torch.Generator(device).manual_seed(seed)
        made = (torch.randn(shape, generator=source, device=device) * self.scale).to(self.dtype)
        return made.to(memory_format=torch.channels_last) if self.channels_last else made


@dataclass(frozen=True)
class Kernel:
    """What is computed: a function of run-time inputs, then constants, which are known.

    `compiled`: whether `torch.compile` takes part. `exact`: the type of the reference. `xla`: the
    same for jax. `precision`: what ours may round.
    """

    function: Callable[..., Tensor]
    inputs: tuple[Spec, ...]
    constants: tuple[Spec, ...] = ()
    rivals: Mapping[str, Callable[..., Tensor]] = field(default_factory=dict[str, Any])
    compiled: bool = True
    exact: torch.dtype = torch.float64
    xla: xla.Function | None = None
    precision: str = "f32"


class Applied(torch.nn.Module):
    """A function whose last arguments are parameters."""

    def __init__(self, function: Callable[..., Tensor], constants: Sequence[Tensor]):
        super().__init__()
        self.function = function
        self.names = [f"constant_{k}" for k in range(len(constants))]
        for name, constant in zip(self.names, constants, strict=True):
            self.register_parameter(name, torch.nn.Parameter(constant, requires_grad=False))

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs, *[getattr(self, name) for name in self.names])


@dataclass
class Contest:
    """Everyone's calls on the same inputs, and how far their results are off."""

    kernel: Kernel
    setting: Setting
    calls: dict[str, Call] = field(default_factory=dict[str, Call])
    known: dict[str, float] = field(default_factory=dict[str, float])
    """Times of those that events do not see."""
    errors: dict[str, float] = field(default_factory=dict[str, float])
    notes: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        made = [s.make(k, self.setting)
                for k, s in enumerate((*self.kernel.inputs, *self.kernel.constants))]
        count = len(self.kernel.inputs)
        self.inputs, self.constants = made[:count], made[count:]
        self.module = Applied(self.kernel.function, self.constants)
        with turn(self.setting):
            exact = self.kernel.function(*(t.to(self.kernel.exact) for t in made))
            self._enter_eager(exact)
            synchronize()
        self._add(OURS, exact, partial(self._ours, ours), guard=False)
        self._add(AUTO, exact, partial(self._ours, with_library))
        for mode in _without_graphs(self.setting.modes) if self.kernel.compiled else ():
            with empty_cache():
                self._add(mode, exact, partial(inductor, self.module, self.inputs, mode))
        self.bytes = sum(t.nbytes for t in (*made, self.result))
        if self.setting.beside:
            return
        for name, function in self.kernel.rivals.items():
            call = Applied(function, self.constants)
            self._add(name, exact, lambda c=call: Compiled(c, 0.0))
        self._enter_xla(made, exact)

    def _ours(self, make: Callable[..., Compiled | None]) -> Compiled | None:
        return make(self.module, self.inputs, self.setting, precision=self.kernel.precision)

    def _enter_eager(self, exact: Tensor) -> None:
        self.calls[EAGER] = lambda: self.module(*self.inputs)
        self.result = self.calls[EAGER]()
        self.errors[EAGER] = off(self.result, exact)

    def _add(
        self, name: str, exact: Tensor, make: Callable[[], Compiled | None], guard: bool = True
    ) -> None:
        """Let someone take part, if there is something; a peer that cannot is told in a note."""
        try:
            compiled = make()
            result = compiled and compiled.call(*self.inputs)
        except Exception as error:
            if not guard:
                raise
            self.notes.append(f"{name}: {told(error)}")
            return
        if compiled is None:
            return
        made = compiled.call
        result = result[0] if isinstance(result, list) else result
        self.calls[name] = lambda: made(*self.inputs)
        self.errors[name] = off(result, exact)

    def _enter_xla(self, made: Sequence[Tensor], exact: Tensor) -> None:
        if self.kernel.xla is None or importlib.util.find_spec("jax") is None:
            return
        try:
            self.known[XLA], result = xla.milliseconds_of(self.kernel.xla, made, self.setting)
            self.errors[XLA] = off(result, exact)
        except Exception as error:
            self.notes.append(f"{XLA}: {told(error)}")

    def times(self, **more: Call) -> dict[str, float]:
        """Everyone's milliseconds on the device."""
        return {**device_times({**self.calls, **more}, self.setting), **self.known}

    def check(self) -> None:
        """Raises ValueError when our result is wrong. That of a library is told, and out."""
        limit = allowed(self.errors[EAGER], self.result.dtype)
        if not self.errors[OURS] <= limit:
            raise ValueError(f"the result is off by {self.errors[OURS]:.1e}, allowed are "
                             f"{limit:.1e}; eager PyTorch's by {self.errors[EAGER]:.1e}")
        if not self.errors.get(AUTO, 0.0) <= limit:
            del self.calls[AUTO]
            self.notes.append(f"{AUTO}: WRONG, more than {limit:.1e}")

    def remarks(self) -> tuple[str, ...]:
        """What else there is to say."""
        errors = ", ".join(f"{name} {error:.1e}" for name, error in self.errors.items())
        return (*self.notes, f"errors: {errors}")


def _without_graphs(modes: Sequence[str]) -> list[str]:
    """A graph copies its inputs first, which is not what is measured of a kernel."""
    plain = {"reduce-overhead": "default", "max-autotune": "max-autotune-no-cudagraphs"}
    return list(dict.fromkeys(plain.get(mode, mode) for mode in modes))


# ---------------------------------------------------------------------- measures
def against_peers(kernel: Kernel, goal: Goal, name: str) -> Measure:
    """The fastest peer's time over ours, for a group of this name."""
    return partial(_beside_peers, kernel, goal, name)


def against_copy(kernel: Kernel, goal: Goal, name: str) -> Measure:
    """The share of a copy's bandwidth that inputs and results are moved with."""
    return partial(_beside_copy, kernel, goal, name)


def _beside_peers(
    kernel: Kernel, goal: Goal, name: str, setting: Setting
) -> Mapping[str, Reached]:
    contest = _contest(kernel, setting)
    times = contest.times()
    mine, auto = times.pop(OURS), _told(times.pop(AUTO, None))
    figures = Figures(milliseconds(mine), {n: milliseconds(t) for n, t in times.items()},
                      min(times.values()) / mine, contest.remarks(), auto)
    return {name: Reached(figures, goal)}


def _beside_copy(
    kernel: Kernel, goal: Goal, name: str, setting: Setting
) -> Mapping[str, Reached]:
    contest = _contest(kernel, setting)
    copied = _copy(setting)
    times = contest.times(**{COPY: copied.call})
    auto = _told(times.pop(AUTO, None))
    rate = copied.bytes / times.pop(COPY)
    shares = {n: contest.bytes / t / rate for n, t in times.items()}
    texts = {n: f"{milliseconds(t)} ({shares[n]:.0%})" for n, t in times.items()}
    ceiling = f"copy: {rate / 1e6:.0f} GB/s"
    figures = Figures(texts.pop(OURS), texts, shares[OURS], (ceiling, *contest.remarks()),
                      auto)
    return {name: Reached(figures, goal)}


def _told(time: float | None) -> str:
    return "" if time is None else milliseconds(time)


def _contest(kernel: Kernel, setting: Setting) -> Contest:
    gc.collect()
    torch.compiler.reset()  # it gives up where it has compiled the same code often
    torch.manual_seed(0)
    contest = Contest(kernel, setting)
    contest.check()
    return contest


@dataclass(frozen=True)
class _Copy:
    bytes: int
    call: Call


def _copy(setting: Setting) -> _Copy:
    """A copy of many bytes: as many are read as are written."""
    size = SMALL if setting.smoke else COPIED
    source = torch.zeros(size, dtype=torch.uint8, device="cpu" if setting.smoke else "cuda")
    target = torch.empty_like(source)
    return _Copy(2 * size, lambda: target.copy_(source))
