"""Whole models in fp16: the time of a call, until the first call, and the memory that calls take.

Ours is exported and compiled, and holds its own copy of the weights; a model whose calls change its
state is taken by `torch.compile(backend="strata")`, whose memory is counted with that of PyTorch's
module. Wall time is from a call to its result on the device, device time is of those that are one
graph. Memory is what a contestant adds to the device, the workspaces of libraries that it calls
included: those of contestants before it are given back first.
"""

from __future__ import annotations

import copy
import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from compiler.torch.backend import strata
from rows import Figures, Goal, Measure, Reached, Setting, milliseconds, programs
from rows.networks import Network, bert, gpt2, gpt2_decode, resnet, vit
from rows.programs import AUTO, EAGER, OURS, Compiled, empty_cache, inductor, ours, with_library
from rows.timing import Call, device_times, synchronize, turn, wall_times

TITLE = "fp16 models: the best peer's wall time of a call / ours"
APART = True
GOAL = Goal(1.0, 1.3)
COMPILE = Goal(8.0, 4.0, at_most=True)
MEMORY = Goal(1.0, 0.8, at_most=True)
GRAPHS = "reduce-overhead"
MODELS: dict[str, Callable[[bool], Network]] = {
    "BERT-base b8 s128": partial(bert, 8), "BERT-base b1 s128": partial(bert, 1),
    "ResNet-50 b32": partial(resnet, 32), "ResNet-50 b1": partial(resnet, 1),
    "GPT-2 b1 s512": partial(gpt2, 512), "GPT-2 decode at 511": partial(gpt2_decode, 511),
    "ViT-B/16 b8": partial(vit, 8),
}


def rows(setting: Setting) -> dict[str, Measure]:
    return {name: partial(measure, make) for name, make in MODELS.items()}


def measure(make: Callable[[bool], Network], setting: Setting) -> Mapping[str, Reached]:
    contest = Contest(_made(make, setting), setting)
    contest.check()
    return contest.reached()


def _made(make: Callable[[bool], Network], setting: Setting) -> Network:
    gc.collect()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    network = make(setting.smoke)
    network.module.eval()
    return network


@dataclass
class Entrant:
    call: Call
    seconds: float
    bytes: int
    error: float


@dataclass
class Contest:
    """Everyone's program of a model, made one after another."""

    network: Network
    setting: Setting
    entrants: dict[str, Entrant] = field(default_factory=dict[str, Entrant])
    notes: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.device = "cpu" if self.setting.smoke else "cuda"
        self.half = copy.deepcopy(self.network.module).half()
        self.given = [_cast(v, torch.float16).to(self.device) for v in self.network.inputs]
        with turn(self.setting):
            exact = _prepared(self.network.module.double().to(self.device))
            self.exact = exact(*(_cast(v, torch.float64) for v in self.given)).cpu()
        self.network.module.to("meta")
        self._enter(OURS, self._ours)
        self._enter(AUTO, self._auto)
        self._enter(EAGER, self._eager)
        with empty_cache():  # what the first mode has compiled is there for others
            for mode in self.setting.modes:
                self._enter(mode, partial(inductor, self.on_device, self.given, mode))

    def _on_device(self) -> torch.nn.Module:
        return _prepared(copy.deepcopy(self.half).to(self.device))

    def _eager(self) -> Compiled:
        self.on_device = self._on_device()
        return Compiled(self.on_device, 0.0)

    def _ours(self) -> Compiled:
        if not self.network.stateful:
            inputs = [v.cpu() for v in self.given]
            return ours(self.half, inputs, self.setting, self.given)
        return backend(self._on_device(), self.given, self.setting)

    def _auto(self) -> Compiled | None:
        if self.network.stateful:
            return None
        return with_library(self.half, [v.cpu() for v in self.given], self.setting, self.given)

    def _enter(self, name: str, make: Callable[[], Compiled | None]) -> None:
        """Let someone take part, if there is something; a peer that cannot is told in a note."""
        before = _allocated()
        try:
            made = make()
            if made is None:
                return
            bytes_ = _peak(lambda: made.call(*self.given)) - before
            result = made.call(*self.given)
        except Exception as error:
            if name == OURS:
                raise
            self.notes.append(f"{name}: {programs.told(error)}")
            return
        result = result[0] if isinstance(result, list) else result
        self.entrants[name] = Entrant(lambda: made.call(*self.given), made.seconds, bytes_,
                                      programs.off(result.cpu(), self.exact))

    def check(self) -> None:
        """Raises ValueError when our result is wrong. That of a library is told, and out."""
        mine, eager = (self.entrants[n].error for n in (OURS, EAGER))
        limit = programs.allowed(eager, torch.float16)
        if not mine <= limit:
            raise ValueError(f"the result is off by {mine:.1e}, allowed are {limit:.1e}; eager "
                             f"PyTorch's by {eager:.1e}")
        if AUTO in self.entrants and not self.entrants[AUTO].error <= limit:
            self.notes.append(f"{AUTO}: WRONG, off by {self.entrants.pop(AUTO).error:.1e}")

    def reached(self) -> Mapping[str, Reached]:
        calls = {name: e.call for name, e in self.entrants.items()}
        walls = wall_times(calls, self.setting)
        device = device_times({n: c for n, c in calls.items() if n in (OURS, GRAPHS)},
                              self.setting)
        errors = ", ".join(f"{n} {e.error:.1e}" for n, e in self.entrants.items())
        device_told = ", ".join(f"{n} {milliseconds(t)}" for n, t in device.items())
        notes = (*self.notes, f"device time: {device_told}; errors: {errors}")
        peers = {n: t for n, t in walls.items() if n not in (OURS, AUTO)}
        auto = milliseconds(walls[AUTO]) if AUTO in walls else ""
        calls_figures = Figures(
            milliseconds(walls[OURS]), {n: milliseconds(t) for n, t in peers.items()},
            min(peers.values()) / walls[OURS], notes, auto)
        return {"models": Reached(calls_figures, GOAL), "compile": self._compile(),
                **({} if self.setting.smoke else {"memory": self._memory()})}

    def _compile(self) -> Reached:
        alone = (OURS, *self.setting.modes[:1])
        seconds = {n: e.seconds for n, e in self.entrants.items() if n in alone}
        texts = {n: f"{s:.1f} s" for n, s in seconds.items()}
        return Reached(Figures(texts.pop(OURS), texts, seconds[OURS]), COMPILE)

    def _memory(self) -> Reached:
        texts = {n: f"{e.bytes / 1e6:.0f} MB" for n, e in self.entrants.items()
                if n in (OURS, EAGER)}
        ratio = self.entrants[OURS].bytes / max(1, self.entrants[EAGER].bytes)
        return Reached(Figures(texts.pop(OURS), texts, ratio), MEMORY)


def backend(module: torch.nn.Module, inputs: list[Any], setting: Setting) -> Compiled:
    """Our backend of `torch.compile`."""
    started = time.perf_counter()
    target = "cuda" if setting.interpret or not setting.smoke else "cpu"
    options = {"target": target, "cache": "off", "interpret": setting.interpret}
    compiled = torch.compile(module, backend=strata, dynamic=False, options=options)
    compiled(*inputs)
    return Compiled(compiled, time.perf_counter() - started)


# ---------------------------------------------------------------------- types and memory
def _cast(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return value.to(dtype) if value.is_floating_point() else value


def _prepared(module: Any) -> Any:
    """A module that is where it shall be, with the state that calls rely on."""
    if hasattr(module, "prepare"):
        module.prepare()
    return module


def _allocated() -> int:
    gc.collect()
    if not torch.cuda.is_available():
        return 0
    _give_back_workspaces()
    return torch.cuda.memory_allocated()


def _give_back_workspaces() -> None:
    """Of libraries: who needs them makes them anew."""
    torch._C._cuda_clearCublasWorkspaces()


def _peak(call: Call) -> int:
    """The most bytes in use on the device during a call."""
    call()
    synchronize()
    if not torch.cuda.is_available():
        return 0
    _give_back_workspaces()
    torch.cuda.reset_peak_memory_stats()
    call()
    synchronize()
    return torch.cuda.max_memory_allocated()
