"""Faults of the compiler itself, and the reproducer folder that is written for each.

    before.mlir      the module before the pass that failed
    weights.npz      its weights, unless they are large
    inputs.npz       the inputs with wrong results
    command.txt      the failed command, and one that reproduces it on before.mlir
    traceback.txt    the traceback
    versions.txt     versions of the compiler and of packages
"""

from __future__ import annotations

import platform
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.diagnostics import without_controls
from compiler.version import __version__
from dialects.records import dataclass

if TYPE_CHECKING:
    from compiler.plugins.plugin_faults import Origin
    from dialects.strata.types import Array
    from dialects.strata.weights import WeightStore

PACKAGES = ("xdsl", "numpy", "onnx", "llvmlite", "triton", "torch", "onnxruntime",
            "openvino")
WEIGHTS_LIMIT = 200 << 20
"""The maximum number of bytes of weights that are copied into a reproducer or dump."""


class CompilerFault(Exception):
    """A failure that neither the model nor the options caused.

    `phase` is the pass, or another phase of compilation. `folder` is that of the reproducer, once
    written. `origin` is the line of a plugin, if the plugin is at fault and not the compiler.
    """

    def __init__(
        self, phase: str, model: str, cause: Exception, origin: Origin | None = None
    ):
        super().__init__(phase)
        self.phase, self.model, self.cause, self.origin = phase, model, cause, origin
        self.folder: Path | None = None

    @property
    def exit_status(self) -> int:
        """What the command line exits with."""
        return 3 if self.origin is None else 1

    def __str__(self) -> str:
        text = without_controls(str(self.cause)).strip().split("\n")[0]
        what = f"in {self.phase} on {self.model}: {type(self.cause).__name__}: {text}"
        if self.origin is None:
            where = f"; reproducer: {self.folder}" if self.folder else ""
            return f"fault of the compiler {what}{where}"
        hint = f"\n  hint:  {self.folder} has the traceback and the text before" if (
            self.folder) else ""
        from compiler.plugins.plugin_faults import frames_of

        shown = frames_of(self.cause, self.origin.file)
        frames = "".join(f"\n    {line}" for line in shown.splitlines())
        return f"a plugin failed {what}\n  where: {self.origin}{frames}{hint}"


@dataclass(frozen=True)
class Reproducer:
    """All that is known about a fault. `again`: the command that reproduces it on `before.mlir`."""

    fault: CompilerFault
    command: str
    again: str
    before: str | None
    weights: WeightStore | None
    inputs: Mapping[str, Array] | None = None

    def write(self) -> Path | None:
        """Write the folder into the working directory, or else a temporary one; return its path.

        None if neither is writable, so that the user still sees the fault itself.
        """
        try:
            folder = _new_folder(f"reproducer-{Path(self.fault.model).stem}-{self.fault.phase}")
            self._fill(folder)
        except OSError:
            return None
        return folder

    def _fill(self, folder: Path) -> None:
        """Raises OSError."""
        (folder / "traceback.txt").write_text(_traceback(self.fault.cause), encoding="utf-8")
        (folder / "versions.txt").write_text("\n".join(versions()) + "\n", encoding="utf-8")
        (folder / "command.txt").write_text(self._commands(), encoding="utf-8")
        if self.before is not None:
            (folder / "before.mlir").write_text(self.before, encoding="utf-8")
        if self.weights is not None and 0 < byte_size(self.weights) <= WEIGHTS_LIMIT:
            self.weights.save(folder / "weights.npz")
        if self.inputs is not None:
            from compiler.io.output import npz_bytes

            (folder / "inputs.npz").write_bytes(npz_bytes(self.inputs))

    def _commands(self) -> str:
        lines = ["failed:", f"  {self.command}"]
        if self.before is not None:
            lines += ["fails again, in this folder:", f"  {self.again}"]
        return "\n".join(lines) + "\n"


def versions() -> list[str]:
    """`name version` of Strata, Python, the machine, and installed packages."""
    lines = [f"strata {__version__}", f"python {platform.python_version()}",
             f"machine {platform.system()} {platform.machine()}"]
    for name in PACKAGES:
        version = package_version(name)
        if version is not None:
            lines.append(f"{name} {version}")
    return lines


def package_version(name: str) -> str | None:
    """The version of a package; None if it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def byte_size(weights: WeightStore) -> int:
    return sum(a.nbytes for a in weights.arrays.values())


def _traceback(error: Exception) -> str:
    return "".join(traceback.format_exception(error))


def _new_folder(wanted: str) -> Path:
    """A new folder of that name, with a number if the name is taken."""
    name = "".join(c if c.isalnum() or c in "-_." else "-" for c in wanted)
    for count in range(1, 1000):
        folder = Path(name if count == 1 else f"{name}-{count}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        except OSError:
            break
        return folder
    import tempfile

    return Path(tempfile.mkdtemp(prefix=f"{name}-"))


def debug_print(error: BaseException) -> None:
    """The traceback on standard error, for those who develop the compiler."""
    traceback.print_exception(error, file=sys.stderr)
