"""Kernels bound by memory, as ONNX models with their twins in PyTorch.

Each row is a graph in ONNX's text form. `{b}` stands for an element type: bfloat16 unless the row
says otherwise. Inputs are random; integer ones count from 0 up to `below`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

HEADER = '<ir_version: 10, opset_import: ["" : 23]>'
Function = Callable[..., Any]


@dataclass(frozen=True)
class Row:
    """A model, what PyTorch does in its place (a function of `torch` and the inputs)."""

    name: str
    inputs: str
    outputs: str
    nodes: str
    twin: Function
    below: int = 50257

    @property
    def text(self) -> str:
        """The model in ONNX's text form."""
        return f"{HEADER} row ({self.inputs}) => ({self.outputs}) {{ {self.nodes} }}"


def _gelu_chain(torch: Any, x: Any) -> Any:
    gelu = torch.nn.functional.gelu
    h = gelu(gelu(x) * 1.5 + 0.25)
    return h * torch.sigmoid(x)


def _embedding(torch: Any, ids: Any, table: Any, places: Any, scale: Any, bias: Any) -> Any:
    embedded = torch.nn.functional.embedding(ids, table) + places
    return torch.nn.functional.layer_norm(embedded, embedded.shape[-1:], scale, bias)


def _softmax(rows: int, columns: int) -> Row:
    shape = f"bfloat16[{rows}, {columns}]"
    return Row(f"softmax {rows}x{columns}", f"{shape} x", f"{shape} y",
               "y = Softmax <axis = -1> (x)", lambda torch, x: x.softmax(-1))


def _layer_norm(rows: int, columns: int) -> Row:
    shape, one = f"bfloat16[{rows}, {columns}]", f"bfloat16[{columns}]"
    return Row(f"layer norm {rows}x{columns}", f"{shape} x, {one} s, {one} b", f"{shape} y",
               "y = LayerNormalization <axis = -1> (x, s, b)",
               lambda torch, x, s, b: torch.nn.functional.layer_norm(x, x.shape[-1:], s, b))


_N64 = "bfloat16[8192, 8192]"
_BIG, _ONE = "bfloat16[8192, 4096]", "bfloat16[4096]"

ROWS = (
    _softmax(8192, 4096),
    _layer_norm(8192, 4096),
    Row("RMS norm 8192x4096", f"{_BIG} x, {_ONE} s", f"{_BIG} y",
        "y = RMSNormalization <axis = -1> (x, s)",
        lambda torch, x, s: torch.nn.functional.rms_norm(x, x.shape[-1:], s, 1e-5)),
    Row("bias GELU residual", f"{_BIG} x, {_ONE} b, {_BIG} r", f"{_BIG} y",
        "t = Add (x, b) u = Gelu (t) y = Add (u, r)",
        lambda torch, x, b, r: torch.nn.functional.gelu(x + b) + r),
    Row("GELU chain 64M", f"{_N64} x", f"{_N64} y",
        "c = Constant <value_float = 1.5> () d = Constant <value_float = 0.25> () "
        "a = Cast <to = 16> (c) b = Cast <to = 16> (d) g = Gelu (x) m = Mul (g, a) "
        "h = Add (m, b) k = Gelu (h) s = Sigmoid (x) y = Mul (k, s)",
        _gelu_chain),
    Row("tanh GELU 64M", f"{_N64} x", f"{_N64} y", 'y = Gelu <approximate = "tanh"> (x)',
        lambda torch, x: torch.nn.functional.gelu(x, approximate="tanh")),
    Row("transpose 8192 bf16", f"{_N64} x", f"{_N64} y", "y = Transpose <perm = [1, 0]> (x)",
        lambda torch, x: x.t().contiguous()),
    Row("transpose 8192x4096 f32", "float[8192, 4096] x", "float[4096, 8192] y",
        "y = Transpose <perm = [1, 0]> (x)", lambda torch, x: x.t().contiguous()),
    Row("transpose NCHW NHWC f16", "float16[64, 256, 56, 56] x", "float16[64, 56, 56, 256] y",
        "y = Transpose <perm = [0, 2, 3, 1]> (x)",
        lambda torch, x: x.permute(0, 2, 3, 1).contiguous()),
    Row("row sum 8192x4096 f32", "float[8192, 4096] x", "float[8192] y",
        "a = Constant <value = int64[1] {1}> () y = ReduceSum <keepdims = 0> (x, a)",
        lambda torch, x: x.sum(1)),
    Row("column sum 8192x4096 f32", "float[8192, 4096] x", "float[4096] y",
        "a = Constant <value = int64[1] {0}> () y = ReduceSum <keepdims = 0> (x, a)",
        lambda torch, x: x.sum(0)),
    Row("mean over HW f16", "float16[64, 512, 56, 56] x", "float16[64, 512] y",
        "a = Constant <value = int64[2] {2, 3}> () y = ReduceMean <keepdims = 0> (x, a)",
        lambda torch, x: x.mean((2, 3))),
    Row("mean over NHW f32", "float[64, 256, 56, 56] x", "float[256] y",
        "a = Constant <value = int64[3] {0, 2, 3}> () y = ReduceMean <keepdims = 0> (x, a)",
        lambda torch, x: x.mean((0, 2, 3))),
    _softmax(262144, 128), _softmax(131072, 197), _softmax(65536, 1000),
    _softmax(4096, 16384), _softmax(1024, 50257), _softmax(64, 1 << 20),
    _layer_norm(65536, 768), _layer_norm(64, 1 << 20),
    Row("embedding layer norm", "int64[64, 512] i, float16[50257, 768] t, float16[512, 768] p, "
        "float16[768] s, float16[768] b", "float16[64, 512, 768] y",
        "g = Gather (t, i) h = Add (g, p) y = LayerNormalization <axis = -1> (h, s, b)",
        _embedding),
    Row("concat columns bf16", f"{_BIG} x, {_BIG} z", _N64 + " y", "y = Concat <axis = 1> (x, z)",
        lambda torch, x, z: torch.cat([x, z], 1)),
    Row("slice bf16", f"{_N64} x", "bfloat16[8190, 8190] y",
        "a = Constant <value = int64[2] {1, 1}> () e = Constant <value = int64[2] {8191, 8191}> () "
        "y = Slice (x, a, e)", lambda torch, x: x[1:8191, 1:8191].contiguous()),
    Row("pad bf16", "bfloat16[8190, 8190] x", f"{_N64} y",
        "p = Constant <value = int64[4] {1, 1, 1, 1}> () y = Pad (x, p)",
        lambda torch, x: torch.nn.functional.pad(x, (1, 1, 1, 1))),
    Row("argmax 8192x4096 f32", "float[8192, 4096] x", "int64[8192] y",
        "y = ArgMax <axis = 1, keepdims = 0> (x)", lambda torch, x: x.argmax(1)),
    Row("cast bf16 to f32", f"{_N64} x", "float[8192, 8192] y", "y = Cast <to = 1> (x)",
        lambda torch, x: x.float()),
    Row("quantize f32 to u8", "float[8192, 8192] x, float s, uint8 z", "uint8[8192, 8192] y",
        "y = QuantizeLinear (x, s, z)",
        lambda torch, x, s, z: (x / s).round().add(z).clamp(0, 255).to(torch.uint8), 9),
    Row("dequantize u8 to f16", "uint8[8192, 8192] x, float16 s, uint8 z",
        "float16[8192, 8192] y", "y = DequantizeLinear (x, s, z)",
        lambda torch, x, s, z: (x.half() - z.half()) * s, 9),
    Row("cumsum 8192x4096 f32", "float[8192, 4096] x", "float[8192, 4096] y",
        "a = Constant <value = int64 {1}> () y = CumSum (x, a)", lambda torch, x: x.cumsum(1)),
)
