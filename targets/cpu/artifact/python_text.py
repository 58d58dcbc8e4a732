"""A file of Python for one library, which needs NumPy and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from dialects.strata.array_type import ArrayType
from targets.cpu.artifact.c_text import DTYPES
from targets.cpu.artifact.ports import MOST_DIMS, Ports

_NUMPY = {"f32": "float32", "f64": "float64", "f16": "float16", "i1": "bool", "index": "int64",
          **{f"{sign}i{bits}": f"{'uint' if sign else 'int'}{bits}"
             for sign in ("", "u") for bits in (8, 16, 32, 64)}}
"""The dtypes that NumPy has itself. Others are passed as the integers of their bits."""


def python_text(name: str, version: str, library: str, ports: Ports, weights: str | None) -> str:
    """`name_numpy.py`, for the library of this file name beside it."""
    values = {"@NAME@": name, "@VERSION@": version, "@LIBRARY@": repr(library),
              "@WEIGHTS@": repr(weights), "@DIMS@": str(MOST_DIMS),
              "@INPUTS@": _ports(ports.plan.input_names, ports.plan.inputs),
              "@OUTPUTS@": _ports(ports.plan.output_names, ports.outputs)}
    text = _TEXT
    for place, value in values.items():
        text = text.replace(place, value)
    return text


def _ports(names: Sequence[str], types: Sequence[ArrayType]) -> str:
    rows = [f"    ({name!r}, {_numpy(t.element)!r}, {DTYPES[t.element][0]}),\n"
            for name, t in zip(names, types, strict=True)]
    return f"[\n{''.join(rows)}]"


def _numpy(element: str) -> str:
    return _NUMPY.get(element) or ("uint16" if DTYPES[element][2] == 2 else "uint8")


_TEXT = '''"""@NAME@: a model compiled by Strata @VERSION@. Needs NumPy, and the library beside it.

    from @NAME@_numpy import Model
    model = Model(threads=4)
    outputs = model(x, y)          a list of arrays; inputs also by name: model(x=x, y=y)

Inputs are arrays of NumPy, or of any library with DLPack; or all of them memoryviews: outputs are
memoryviews, too, and NumPy is not imported. A model is for one thread at a time.
"""
import ctypes
import os
import sys

INPUTS = @INPUTS@
OUTPUTS = @OUTPUTS@
"""Names, dtypes, and dtypes in C."""
_HERE = os.path.dirname(os.path.abspath(__file__))
_LIBRARY, _WEIGHTS = @LIBRARY@, @WEIGHTS@
_LATE = ctypes.c_size_t(-1).value


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("dtype", ctypes.c_int32),
                ("rank", ctypes.c_int32), ("shape", ctypes.c_int64 * @DIMS@)]


class _Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("threads", ctypes.c_int32),
                ("allocator", ctypes.c_void_p), ("weights", ctypes.c_char_p),
                ("interrupt", ctypes.c_void_p), ("interrupt_context", ctypes.c_void_p),
                ("copies", ctypes.c_int32), ("verify", ctypes.c_int32)]


class Model:
    """The model. `threads`: 0 for all processors. `verify`: whether to compare the constants with
    their checksum first."""

    def __init__(self, path=None, threads=0, weights=None, verify=False):
        self._library = ctypes.CDLL(path or os.path.join(_HERE, _LIBRARY))
        self._state = ctypes.c_void_p()
        arrays = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32]
        self._call, self._shapes = self._function("call"), self._function("shapes")
        self._call.argtypes = self._shapes.argtypes = arrays
        self._ins, self._outs = (_Tensor * len(INPUTS))(), (_Tensor * len(OUTPUTS))()
        if weights is None and _WEIGHTS is not None:
            weights = os.path.join(_HERE, _WEIGHTS)
        options = _Options(ctypes.sizeof(_Options), threads, None,
                           None if weights is None else os.fsencode(weights), verify=verify)
        self._check(self._function("create")(ctypes.byref(options), ctypes.byref(self._state)))

    def _function(self, name, result=ctypes.c_int):
        found = getattr(self._library, "@NAME@_" + name)
        found.restype = result
        return found

    def _check(self, status):
        if status:
            text = self._function("error_text", ctypes.c_char_p)(status)
            more = self._function("message", ctypes.c_char_p)(self._state)
            raise ValueError((more or text).decode("utf-8", "replace"))

    def __call__(self, *inputs, **named):
        given = dict(zip((name for name, _, _ in INPUTS), inputs), **named)
        if len(given) != len(INPUTS) or len(inputs) > len(INPUTS):
            raise ValueError("the model takes " + ", ".join(name for name, _, _ in INPUTS))
        are_views = given and all(isinstance(value, memoryview) for value in given.values())
        kind = _Views if are_views else _Arrays
        arrays = [kind.taken(given[name], name, dtype) for name, dtype, _ in INPUTS]
        for tensor, array, (_, _, code) in zip(self._ins, arrays, INPUTS):
            tensor.data, tensor.bytes, tensor.dtype = kind.address(array), array.nbytes, code
            tensor.rank = array.ndim
            tensor.shape[:array.ndim] = array.shape
        call = self._state, self._ins, len(INPUTS), self._outs, len(OUTPUTS)
        self._check(self._shapes(*call))
        outputs = [None if t.bytes == _LATE else kind.empty(tuple(t.shape[:t.rank]), dtype)
                   for t, (_, dtype, _) in zip(self._outs, OUTPUTS)]
        for tensor, array in zip(self._outs, outputs):
            tensor.data = None if array is None else kind.address(array)
        self._check(self._call(*call))
        return [_copied(kind, tensor, dtype) if array is None else array
                for array, tensor, (_, dtype, _) in zip(outputs, self._outs, OUTPUTS)]

    def close(self):
        """Free the memory and end the threads; later calls fail."""
        state, self._state = self._state, ctypes.c_void_p()
        self._function("destroy", None)(state)

    def __del__(self):
        if getattr(self, "_state", None):
            self.close()


class _Arrays:
    """Inputs and outputs as arrays of NumPy."""

    @staticmethod
    def taken(value, name, dtype):
        """A C-contiguous array of an input."""
        import numpy as np

        is_foreign = hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray)
        array = np.from_dlpack(value) if is_foreign else np.asarray(value)
        if array.dtype != dtype or array.ndim > @DIMS@:
            raise ValueError(f"input {name!r} must be {dtype}, of at most @DIMS@ dims; it is "
                             f"{array.dtype}, of {array.ndim}")
        return np.ascontiguousarray(array).reshape(array.shape)

    @staticmethod
    def empty(shape, dtype):
        import numpy as np

        return np.empty(shape, dtype)

    @staticmethod
    def address(array):
        return array.ctypes.data


class _Views:
    """Inputs and outputs as memoryviews."""

    formats = {"float32": "f", "float64": "d", "float16": "e", "bool": "?", "int8": "b",
               "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H",
               "uint32": "I", "uint64": "Q"}

    @classmethod
    def taken(cls, value, name, dtype):
        """A C-contiguous view of an input, of memory that can be written."""
        wanted = cls.formats[dtype]
        same = {"q": "ql", "Q": "QL"}[wanted] if wanted in "qQ" and _LONG == 8 else wanted
        if value.format.lstrip(_NATIVE) not in same or value.ndim > @DIMS@:
            raise ValueError(f"input {name!r} must be a view of {dtype} ({wanted}), of at most "
                             f"@DIMS@ dims; it is {value.format}, of {value.ndim}")
        if value.c_contiguous and not value.readonly:
            return value
        return cls._shaped(bytearray(value.tobytes()), value.shape, dtype)

    @classmethod
    def empty(cls, shape, dtype):
        size = ctypes.sizeof(_TYPES[dtype])
        for extent in shape:
            size *= extent
        return cls._shaped(bytearray(size), shape, dtype)

    @classmethod
    def _shaped(cls, memory, shape, dtype):
        """Views that `cast` makes cannot have dims of 0 elements; then there is nothing to see."""
        view = memoryview(memory)
        if 0 in shape:
            return view.cast(cls.formats[dtype])
        return view.cast(cls.formats[dtype], shape)

    @staticmethod
    def address(view):
        if view.nbytes == 0:
            return None
        return ctypes.addressof(ctypes.c_char.from_buffer(view))


_NATIVE = "@=<" if sys.byteorder == "little" else "@=>"
"""What formats may start with; those of arrays of ctypes do."""
_LONG = ctypes.sizeof(ctypes.c_long)
_TYPES = {"float32": ctypes.c_float, "float64": ctypes.c_double, "float16": ctypes.c_uint16,
          "bool": ctypes.c_bool, "int8": ctypes.c_int8, "int16": ctypes.c_int16,
          "int32": ctypes.c_int32, "int64": ctypes.c_int64, "uint8": ctypes.c_uint8,
          "uint16": ctypes.c_uint16, "uint32": ctypes.c_uint32, "uint64": ctypes.c_uint64}


def _copied(kind, tensor, dtype):
    """An output whose size only the run knows, as memory of its own."""
    array = kind.empty(tuple(tensor.shape[:tensor.rank]), dtype)
    if array.nbytes:
        ctypes.memmove(kind.address(array), tensor.data, array.nbytes)
    return array
'''
