"""Compile Triton kernels to assembly and code, one job per line of JSON on stdin.

A job names the file with the kernel's source, its signature and options, the GPU, what its back end
calls the results, and a path without suffix for these, which appear together: `.json` last, by
renaming. The reply is one line of
JSON, `{}` or `{"error": text}`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any, cast

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


def compile_job(job: dict[str, Any]) -> None:
    """Write the assembly, the code and the facts of one kernel."""
    source = ASTSource(
        fn=_load(job["source"], job["name"]), signature=dict(job["signature"]), constexprs={},
        attrs={(k,): [["tt.divisibility", 16]] for k in job["divisible"]})
    options = {"num_warps": job["warps"], "num_stages": job["stages"],
               "enable_fp_fusion": job["fp_fusion"]}
    compiled = cast(Any, triton).compile(source, target=GPUTarget(*job["gpu"]), options=options)
    facts: dict[str, Any] = {"entry": job["name"], "shared": compiled.metadata.shared,
             "warps": compiled.metadata.num_warps}
    results = Path(job["results"])
    for level in job["levels"]:
        content = compiled.asm[level]
        _write(results.with_suffix(f".{level}"),
               content.encode() if isinstance(content, str) else content)
    _write(results.with_suffix(".json"), json.dumps(facts).encode())


def _load(path: str, name: str) -> Any:
    """The kernel's function, from a module of its own."""
    spec = importlib.util.spec_from_file_location(f"strata_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all, also when several processes write the same file."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_bytes(content)
    partial.replace(path)


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Triton prints is no reply
    for line in sys.stdin:
        try:
            compile_job(json.loads(line))
            reply: dict[str, str] = {}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
