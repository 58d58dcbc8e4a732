"""What runs a network: Strata, or onnxruntime to compare with.

Both sides compute in single precision on the number of threads they are given.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

Feed = dict[str, np.ndarray]


class Engine(Protocol):
    """All that the OCR pipeline asks of an engine."""

    name: str

    def run(self, model: Path, feed: Feed) -> list[np.ndarray]:
        """The model's outputs, in the model's order. `feed` is in the model's input order."""
        ...


@dataclass
class Strata:
    """Compiles a model at its first use and keeps the executable."""

    threads: int = 1
    dumps: Path | None = None
    name: str = "strata"
    compile_seconds: dict[Path, float] = field(default_factory=dict)
    executables: dict[Path, Any] = field(default_factory=dict)

    def dump_folder(self, model: Path) -> Path | None:
        return self.dumps / model.stem if self.dumps else None

    def prepare(self, model: Path) -> None:
        """Compile `model`, with a dump of every level, unless that is done already."""
        if model in self.executables:
            return
        import compiler

        start = time.perf_counter()
        self.executables[model] = compiler.compile(
            model, target="cpu", threads=self.threads, dump_dir=self.dump_folder(model)
        )
        self.compile_seconds[model] = time.perf_counter() - start

    def run(self, model: Path, feed: Feed) -> list[np.ndarray]:
        self.prepare(model)
        return self.executables[model](*feed.values())


@dataclass
class OnnxRuntime:
    """onnxruntime with its default optimizations, on the same number of threads."""

    threads: int = 1
    name: str = "onnxruntime"
    sessions: dict[Path, Any] = field(default_factory=dict)

    def session(self, model: Path) -> Any:
        if model not in self.sessions:
            import onnxruntime

            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = self.threads
            options.inter_op_num_threads = 1
            self.sessions[model] = onnxruntime.InferenceSession(
                str(model), options, providers=["CPUExecutionProvider"]
            )
        return self.sessions[model]

    def run(self, model: Path, feed: Feed) -> list[np.ndarray]:
        return self.session(model).run(None, feed)
