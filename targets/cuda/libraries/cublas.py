"""cuBLASLt through ctypes: matrix products by the library that comes with PyTorch's packages.

Our matrices are row-major and cuBLAS's column-major, so the transposed product is computed, with
its factors exchanged. Sums are in f32 and without workspace. Any number of calls may therefore run
at a time, and the order of summation never changes.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from ctypes import byref, c_float, c_int, c_int32, c_int64, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import Any

from targets.cuda.build.packages import load
from targets.cuda.errors import CudaError
from targets.locks import Turns

_NAMES = ("libcublasLt.so.13", "libcublasLt.so.12")
_PACKAGES = ("nvidia-cublas", "nvidia-cublas-cu12")
_TYPES = {"f32": 0, "f16": 2, "bf16": 14, "f8E4M3FN": 28}  # cudaDataType
_COMPUTE_F32 = 68  # cublasComputeType_t
_TRANSPOSE_A, _TRANSPOSE_B, _EPILOGUE, _BIAS = 3, 4, 7, 8  # cublasLtMatmulDescAttributes_t
_BIAS_TYPE = 26
_PLAIN, _RELU, _WITH_BIAS = 1, 2, 4  # cublasLtEpilogue_t: the last two may be combined
_BATCH_COUNT, _BATCH_STRIDE = 5, 6  # cublasLtMatrixLayoutAttribute_t
_MAX_WORKSPACE = 1  # cublasLtMatmulPreferenceAttributes_t
_TRANSPOSED = 1  # cublasOperation_t


@cache
def library() -> ctypes.CDLL | None:
    """cuBLASLt; None if it is not installed."""
    return load(_NAMES, _PACKAGES)


@cache
def version() -> int | None:
    """The version of cuBLASLt, such as 120805; None without it."""
    lib = library()
    if lib is None:
        return None
    lib.cublasLtGetVersion.restype = c_size_t
    return int(lib.cublasLtGetVersion())


def _call(function: str, *arguments: Any) -> None:
    lib = library()
    assert lib is not None, "asked for where there is one"
    status = getattr(lib, function)(*arguments)
    if status:
        raise CudaError(f"cuBLAS's {function} failed with status {status}")


@cache
def _handle() -> c_void_p:
    """The handle, for the context that is current at the first call; we use no other."""
    handle = c_void_p()
    _call("cublasLtCreate", byref(handle))
    return handle


class _Found(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [("algorithm", c_uint64 * 8), ("workspace", c_size_t), ("state", c_int),
                ("waves", c_float), ("reserved", c_int * 4)]


@dataclass(frozen=True)
class Matrix:
    """A row-major matrix, `batch` times; `element`: the name of its element type."""

    rows: int
    columns: int
    element: str
    batch: int = 1


@dataclass(frozen=True)
class Product:
    """`left @ right`, plus a bias per column, plus another matrix. A factor may be transposed in
    memory; then the matrix in memory is described. `relu`: whether a ReLU follows."""

    left: Matrix
    right: Matrix
    result: Matrix
    left_transposed: bool = False
    right_transposed: bool = False
    bias: str | None = None
    """The bias's element type; None without a bias."""
    added: bool = False
    relu: bool = False


class Call:
    """A prepared product. Raises CudaError if cuBLAS does not support it."""

    workspace = 0

    def __init__(self, product: Product) -> None:
        self.product, self._layouts, self._operation = product, list[c_void_p](), c_void_p()
        weakref.finalize(self, _free, self._layouts, self._operation).atexit = False
        for matrix in (product.right, product.left, product.result):
            self._layouts.append(_layout(matrix))
        _call("cublasLtMatmulDescCreate", byref(self._operation), c_int(_COMPUTE_F32),
              c_int(_TYPES["f32"]))
        for attribute, transposed in ((_TRANSPOSE_A, product.right_transposed),
                                      (_TRANSPOSE_B, product.left_transposed)):
            if transposed:
                self._set(attribute, c_int32(_TRANSPOSED))
        epilogue = _RELU * product.relu + _WITH_BIAS * (product.bias is not None)
        self._set(_EPILOGUE, c_int32(epilogue or _PLAIN))
        if product.bias is not None:
            self._set(_BIAS_TYPE, c_int32(_TYPES[product.bias]))
        self._algorithm = self._find()
        self._scales = c_float(1.0), c_float(float(product.added))
        self._turn = Turns("a call of cuBLAS", CudaError)

    def _set(self, attribute: int, value: Any) -> None:
        _call("cublasLtMatmulDescSetAttribute", self._operation, c_int(attribute), byref(value),
              c_size_t(ctypes.sizeof(value)))

    def _find(self) -> _Found:
        preference, found, count = c_void_p(), _Found(), c_int()
        _call("cublasLtMatmulPreferenceCreate", byref(preference))
        none = c_uint64(0)
        right, left, result = self._layouts
        try:
            _call("cublasLtMatmulPreferenceSetAttribute", preference, c_int(_MAX_WORKSPACE),
                  byref(none), c_size_t(8))
            _call("cublasLtMatmulAlgoGetHeuristic", _handle(), self._operation, right, left, result,
                  result, preference, c_int(1), byref(found), byref(count))
        finally:
            _call("cublasLtMatmulPreferenceDestroy", preference)
        if not count.value or found.state:
            raise CudaError(f"cuBLAS does not support {self.product}")
        return found

    def __call__(self, addresses: Sequence[int], stream: int, workspace: int = 0) -> None:
        """`addresses`: the left factor, the right one, the bias and the added matrix if any, and
        the result."""
        left, right, *extra, result = addresses
        layouts, target = self._layouts, c_void_p(result)
        added = c_void_p(extra[-1]) if self.product.added else target
        one, others = self._scales
        with self._turn:
            if self.product.bias is not None:
                self._set(_BIAS, c_uint64(extra[0]))
            _call("cublasLtMatmul", _handle(), self._operation, byref(one), c_void_p(right),
                  layouts[0], c_void_p(left), layouts[1], byref(others), added, layouts[2], target,
                  layouts[2], byref(self._algorithm), None, c_size_t(0), c_void_p(stream))


def _free(layouts: Sequence[c_void_p], operation: c_void_p) -> None:
    for layout in layouts:
        _call("cublasLtMatrixLayoutDestroy", layout)
    if operation:
        _call("cublasLtMatmulDescDestroy", operation)


def _layout(matrix: Matrix) -> c_void_p:
    """The column-major layout, in which rows and columns are exchanged."""
    layout = c_void_p()
    _call("cublasLtMatrixLayoutCreate", byref(layout), c_int(_TYPES[matrix.element]),
          c_uint64(matrix.columns), c_uint64(matrix.rows), c_int64(matrix.columns))
    if matrix.batch > 1:
        stride = c_int64(matrix.rows * matrix.columns)
        for attribute, value in ((_BATCH_COUNT, c_int32(matrix.batch)), (_BATCH_STRIDE, stride)):
            _call("cublasLtMatrixLayoutSetAttribute", layout, c_int(attribute), byref(value),
                  c_size_t(ctypes.sizeof(value)))
    return layout
