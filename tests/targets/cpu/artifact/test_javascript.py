"""The loader of WebAssembly in Node: where it finds models, and what it says of bad input."""

from __future__ import annotations

import functools
import http.server
import json
import shutil
import threading
from collections.abc import Generator
from pathlib import Path

import onnx.parser
import pytest

from targets.cpu.artifact.cross import zig_command
from tests import processes
from tests.targets.cpu.artifact.shipped import ship
from tests.targets.cpu.artifact.test_c_programs import MLP

pytestmark = pytest.mark.skipif(
    not zig_command() or shutil.which("node") is None, reason="there is no Zig or no Node")
PROGRAM = """
import {Model} from "./mlp.mjs";
import {readFileSync} from "node:fs";
const told = async (source, x) => {
    try {
        const {y} = (await Model.load(source)).run(x);
        return [y.shape, Array.from(y.data).reduce((a, b) => a + b)];
    } catch (error) {
        return `${error.name}: ${error.message}`;
    }
};
const x = {x: {data: new Float32Array(16), shape: [2, 8]}};
const bytes = readFileSync("mlp.wasm");
console.log(JSON.stringify({
    file: await told("mlp.wasm", x), url: await told(new URL("mlp.wasm", import.meta.url), x),
    text: await told(new URL("mlp.wasm", import.meta.url).href, x), bytes: await told(bytes, x),
    address: await told("ADDRESS/mlp.wasm", x), nowhere: await told("ADDRESS/none.wasm", x),
    missing: await told("none.wasm", x), short: await told(bytes.subarray(0, 5000), x),
    other: await told(readFileSync("mlp.mjs"), x),
    shape: await told(bytes, {x: {data: new Float32Array(16), shape: [4, 4]}}),
    rank: await told(bytes, {x: {data: new Float32Array(16), shape: [16]}}),
    dtype: await told(bytes, {x: {data: new Int32Array(16), shape: [2, 8]}}),
    count: await told(bytes, {x: {data: new Float32Array(15), shape: [2, 8]}}),
    name: await told(bytes, {z: {data: new Float32Array(16), shape: [2, 8]}})}));
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        del format, args


@pytest.fixture
def address(tmp_path: Path) -> Generator[str]:
    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_models_are_found_and_bad_input_is_an_error(tmp_path: Path, address: str) -> None:
    ship(onnx.parser.parse_model(MLP), tmp_path / "mlp.wasm", "mlp", triple="wasm32")
    (tmp_path / "program.mjs").write_text(PROGRAM.replace("ADDRESS", address))
    done = processes.run(["node", "program.mjs"], cwd=tmp_path, capture_output=True, text=True,
                         limit=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for way in ("file", "url", "text", "bytes", "address"):
        shape, total = found.pop(way)
        assert shape == [2, 4] and total == pytest.approx(2), way
    assert "404" in found.pop("nowhere")
    assert "none.wasm" in found.pop("missing")
    assert all(found.pop(way).startswith("CompileError") for way in ("short", "other"))
    for way, text in found.items():
        assert text.startswith("Error: ") and len(text) > 15, way
