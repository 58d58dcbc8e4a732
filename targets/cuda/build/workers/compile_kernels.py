"""Compiles Triton kernels to assembly and code, each in a fork of this process.

Before there is work, the process imports Triton once, and does what every fork would otherwise
repeat: Triton hashes its own files for its cache, which is not used here. A request is one line of
JSON on stdin: its number as `request`, the jobs, and how many `processes` may run at a time. It may
come while others are worked on: their jobs come first, and no processor waits for the slowest. A
job names the file with the kernel's source, its signature and options, the GPU, the back end's
names for its results, and a path without suffix for them. The results appear together, because
`.json` is renamed last. The reply to each job is one line of JSON: the `request`, the job's number
in it as `job`, and the `error`, empty if all is well.
"""

from __future__ import annotations

import importlib.util
import json
import os
import selectors
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.cache import triton_key


def compile_job(job: dict[str, Any]) -> None:
    """Write the assembly, the code and the facts of one kernel."""
    function, signature = _load(job["source"], job["name"]), dict(job["signature"])
    knobs.compilation.disable_line_info = not job["lines"]
    mapped = [k for k, kind in enumerate(signature.values()) if kind.startswith("tensordesc")]
    attributes = {(k,): [["tt.divisibility", 16]] for k in job["divisible"] if k not in mapped}
    source = _source_kind(function)(
        fn=function, signature=signature, constexprs={}, attrs=attributes)
    options = {"num_warps": job["warps"], "num_stages": job["stages"],
               "enable_fp_fusion": job["fp_fusion"], "maxnreg": job["registers"] or None}
    compiled = cast(Any, triton).compile(source, target=GPUTarget(*job["gpu"]), options=options)
    facts: dict[str, Any] = {"entry": job["name"], "shared": compiled.metadata.shared,
             "warps": compiled.metadata.num_warps,
             "descriptors": [*zip(mapped, compiled.metadata.tensordesc_meta, strict=True)]
             if mapped else []}
    results = Path(job["results"])
    for level in job["levels"]:
        content = compiled.asm[level]
        _write(results.with_suffix(f".{level}"),
               content.encode() if isinstance(content, str) else content)
    _write(results.with_suffix(".json"), json.dumps(facts).encode())


def _source_kind(function: Any) -> Any:
    """Triton's class for a kernel's source, in its own language or in Gluon."""
    if not function.is_gluon():
        return ASTSource
    return importlib.import_module("triton.experimental.gluon._runtime").GluonASTSource


def _load(path: str, name: str) -> Any:
    """The kernel's function, from a module of its own."""
    spec = importlib.util.spec_from_file_location(f"strata_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically, even if several processes write the same file."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_bytes(content)
    partial.replace(path)


class Place(NamedTuple):
    """Which job it is: the number of its request, and its own in it."""

    request: int
    job: int


class Requests:
    """What arrives on stdin, and is not begun yet."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Place, dict[str, Any]]] = deque()
        self.processes, self.is_open = 1, True
        self._text = b""

    def read(self) -> None:
        """Take what has arrived. If nobody asks any more, nobody waits for an answer either."""
        part = os.read(0, 1 << 16)
        if not part:
            self.is_open = False
            self.waiting.clear()
        *lines, self._text = (self._text + part).split(b"\n")
        for line in lines:
            request = json.loads(line)
            self.processes = request["processes"]
            self.waiting += [(Place(request["request"], number), job)
                             for number, job in enumerate(request["jobs"])]


def compile_all(requests: Requests) -> Iterator[tuple[Place, str]]:
    """The place and the error of each job, in the order in which they finish."""
    running = 0
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        while requests.is_open or running:
            while requests.waiting and running < requests.processes:
                place, job = requests.waiting.popleft()
                process, end = _fork(job)
                selector.register(end, selectors.EVENT_READ, (place, process, bytearray()))
                running += 1
            for key, _ in selector.select():
                if key.fd == 0:
                    requests.read()
                    if not requests.is_open:
                        selector.unregister(0)
                    continue
                place, process, text = key.data
                part = os.read(key.fd, 1 << 16)
                text += part
                if not part:
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    running -= 1
                    failure = _failure(process)
                    yield place, text.decode() or failure


def _fork(job: dict[str, Any]) -> tuple[int, int]:
    """A process that compiles one kernel, and the read end of a pipe for its error."""
    end, other = os.pipe()
    process = os.fork()
    if process:
        os.close(other)
        return process, end
    try:
        compile_job(job)
    except Exception as error:
        with os.fdopen(other, "w") as file:
            file.write(f"{type(error).__name__}: {error}")
    finally:
        sys.stderr.flush()
        os._exit(0)


def _failure(process: int) -> str:
    """Why a process ended without a message; empty if it ended normally."""
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    return f"its process ended with status {code}" if code else ""


def warm() -> None:
    """Prepare what every compilation needs, so that forks inherit it."""
    importlib.import_module("triton.compiler.code_generator")
    triton_key()


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Triton's own output must not mix with replies
    warm()
    for place, error in compile_all(Requests()):
        print(json.dumps({**place._asdict(), "error": error}), file=replies, flush=True)


if __name__ == "__main__":
    main()
