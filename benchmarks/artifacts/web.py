"""Times models in WebAssembly beside onnxruntime-web, on one thread in the same Node.

    npm install --prefix DIR onnxruntime-web
    STRATA_ZOO=folder python benchmarks/artifacts/web.py MODEL... --packages DIR [--rounds N]

The folder holds `NAME.onnx` files and `models.json` (as for benchmarks/zoo). Each model is compiled
to WebAssembly, and runs on the inputs of its first case in turns with onnxruntime-web (its `wasm`
provider, all optimizations). Columns:

    code         bytes of model.wasm beside its constants
    here, web    the least milliseconds of processor time of a call, which other programs change
                 less; the ratio of the medians is in brackets
    difference   of outputs, relative to the largest element of each
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from zoo_option import parsed

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def main() -> None:
    options = _options()
    models = json.loads((options.zoo / "models.json").read_text())["models"]
    described = {m["name"]: m for m in models}
    print("| model | code | constants | here | web | web / here | difference |\n|---|"
          + "---:|" * 6)
    for name in options.models:
        with tempfile.TemporaryDirectory() as folder:
            print(row(name, described[name]["cases"][0], Path(folder), options), flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time models in WebAssembly.")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--packages", type=Path, default=Path.cwd())
    parser.add_argument("--node", default="node", help="the program of Node")
    parser.add_argument("--rounds", type=int, default=30)
    return parsed(parser)


def row(name: str, case: Any, folder: Path, options: argparse.Namespace) -> str:
    """Compile a model, run both, and tell."""
    from inputs import make_inputs

    from targets.library_file import read_facts

    source, library = options.zoo / f"{name}.onnx", folder / f"{name}.wasm"
    _run([sys.executable, "-m", "compiler", "compile", source, "-o", library, "--triple",
          "wasm32"])
    held = read_facts(str(library))["constants"]["bytes"]
    described: list[dict[str, Any]] = []
    for number, (port, array) in enumerate(make_inputs(case).items()):
        array.tofile(folder / str(number))
        described.append({"name": port, "file": str(folder / str(number)),
                          "dtype": array.dtype.name, "shape": array.shape})
    (folder / "inputs.json").write_text(json.dumps(described))
    found = json.loads(_run([
        options.node, HERE / "web.mjs", library.with_suffix(".mjs"), library, source,
        folder / "inputs.json", options.rounds, options.packages.resolve()]))
    ours, theirs = found["times"]["ours"], found["times"]["theirs"]
    middle = statistics.median(theirs) / statistics.median(ours)
    return (f"| {name} | {(library.stat().st_size - held) / 1e3:.0f} kB | {held / 1e6:.1f} MB | "
            f"{min(ours):.2f} ms | {min(theirs):.2f} ms | {min(theirs) / min(ours):.2f} "
            f"({middle:.2f}) | {found['difference']:.0e} |")


def _run(words: list[Any]) -> str:
    done = subprocess.run(list(map(str, words)), cwd=ROOT, capture_output=True, text=True,
                          check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout.splitlines()[-1] if done.stdout else ""


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "zoo")]
    main()
