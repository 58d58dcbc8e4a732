"""The target `c`: each kernel becomes a C function, compiled with `cc` and called through ctypes.

A target schedules, emits and loads. This one makes every axis a loop over single elements, so that
all tiles are scalars. The host program around the kernels is interpreted.
"""

import ctypes
import subprocess
import tempfile

from xdsl.dialects import arith

from dialects import block
from dialects.strata.schedule import Level, Schedule
from dialects.strata.types import TileType
from dialects.symbolic.symbol import Kind, Symbol
from targets.base import Target, TargetError
from targets.interpreted import InterpretedHost
from targets.parts import Emission, Running, Scheduling

COMMAND = ("cc", "-O2", "-shared", "-fPIC", "-fwrapv", "-ffp-contract=off", "-x", "c", "-", "-lm")
HEAD = """#include <stdbool.h>
#include <stdint.h>
#include <tgmath.h>
#define MAX(a, b) ((a) != (a) || (a) > (b) ? (a) : (b))
#define SELECT(c, a, b) ((c) ? (a) : (b))
#define MIN(a, b) ((a) != (a) || (a) < (b) ? (a) : (b))
static int64_t FLOORDIV(int64_t a, int64_t b) { return a / b - (a % b && (a < 0) != (b < 0)); }
static int64_t MOD(int64_t a, int64_t b) { return a - FLOORDIV(a, b) * b; }
"""
TYPES = {"f32": "float", "f64": "double", "i1": "bool", "index": "int64_t"} | {
    f"{sign}i{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)}
SIGNS = {"addf": "+", "subf": "-", "mulf": "*", "divf": "/", "addi": "+", "subi": "-",
         "muli": "*", "divsi": "/", "remsi": "%", "andi": "&", "ori": "|", "xori": "^"}
COMPARISONS = {
    "arith.cmpi": {0: "==", 1: "!=", 2: "<", 3: "<=", 4: ">", 5: ">="},
    "arith.cmpf": {1: "==", 2: ">", 3: ">=", 4: "<", 5: "<=", 13: "!="}}
CALLS = {"maximumf": "MAX", "minimumf": "MIN", "maxsi": "MAX", "minsi": "MIN", "absf": "fabs",
         "powf": "pow", "roundeven": "rint", "negf": "-", "sitofp": "", "extf": "", "truncf": "",
         "extsi": "", "trunci": "", "index_cast": "", "select": "SELECT", **{f: f for f in (
             "exp", "log", "sqrt", "tanh", "erf", "sin", "cos", "floor", "ceil", "log1p", "expm1")}}


def c_type(type_):
    """Raises TargetError for a tile of more than one element, and for what C has no type for."""
    element = str(getattr(type_, "element", type_))
    if element not in TYPES or (isinstance(type_, TileType) and type_.shape):
        raise TargetError(f"the target c has no {type_}")
    return TYPES[element]


def number(value):
    return str(value).lower().replace("inf", "INFINITY").replace("nan", "NAN")


class Emitter:
    """The lines of one C function, and the C names of the kernel's values and sizes."""

    def __init__(self, kernel):
        self.lines = [f"void {kernel.sym_name.data}(void **buffers, const int64_t *sizes) {{"]
        self.names = {size: f"sizes[{k}]" for k, size in enumerate(kernel.size_names)}
        self.names |= {b: f"(({c_type(b.type)} *)buffers[{k}])"
                       for k, b in enumerate(kernel.buffers)}
        self.run(kernel.body.block)
        self.lines.append("}")

    def define(self, value, text):
        self.names[value] = f"v{len(self.names)}"
        self.lines.append(f"{c_type(value.type)} {self.names[value]} = {text};")

    def index(self, expr, operands=()):
        return "(0" + "".join(f" + {factor}L" + "".join(f"*{self.atom(a, operands)}" for a in atoms)
                              for atoms, factor in expr.terms) + ")"

    def atom(self, atom, operands):
        if isinstance(atom, Symbol):
            return self.names[operands[atom.number] if atom.kind is Kind.OPERAND else atom]
        return f"{atom.op.upper()}({', '.join(self.index(e, operands) for e in atom.args)})"

    def access(self, op):
        """An element of a buffer, and the condition that it is inside."""
        where = [self.index(e, op.indices) for e in op.exprs]
        sizes = [self.index(size) for size in op.buffer.type.shape]
        position = "0"
        for i, size in zip(where, sizes, strict=True):
            position = f"({position})*{size} + {i}"
        inside = [f"0 <= {where[d]} && {where[d]} < {sizes[d]}" for d in op.checked_dims]
        return f"{self.names[op.buffer]}[{position}]", " && ".join(inside) or "true"

    def run(self, body):
        """Emit a block; the names of what it yields."""
        *operations, end = body.ops
        for op in operations:
            self.emit(op)
        return [self.names[v] for v in end.operands]

    def emit(self, op):
        operands, kind = [self.names[v] for v in op.operands], op.name.partition(".")[2]
        if isinstance(op, block.ForOp):
            self.loop(op)
        elif isinstance(op, block.StoreOp):
            element, inside = self.access(op)
            self.lines.append(f"if ({inside}) {element} = {operands[0]};")
        elif isinstance(op, block.MapOp):
            self.names |= zip(op.body.block.args, operands, strict=True)
            self.names |= zip(op.results, self.run(op.body.block), strict=True)
        else:
            self.define(op.results[0], self.value(op, kind, operands))

    def value(self, op, kind, operands):
        match op:
            case block.LoadOp():
                element, inside = self.access(op)
                return f"{inside} ? {element} : {number(op.pad_value)}"
            case block.FullOp():
                return number(op.number)
            case block.IndexOp():
                return self.index(op.expr.data, op.indices)
            case arith.ConstantOp():
                return number(op.value.value.data)
            case arith.CmpfOp() | arith.CmpiOp():
                if sign := COMPARISONS[op.name].get(op.predicate.value.data):
                    return f" {sign} ".join(operands)
        if kind in SIGNS:
            return f" {SIGNS[kind]} ".join(operands)
        if kind in CALLS:
            return f"{CALLS[kind]}({', '.join(operands)})"
        raise TargetError(f"the target c has no {op.name}")

    def loop(self, op):
        counter, *carried = op.body.block.args
        for argument, value in zip(carried, op.carried, strict=True):
            self.define(argument, self.names[value])
        lower, upper = (self.index(e.data, op.indices) for e in (op.lower, op.upper))
        i = self.names[counter] = f"i{len(self.names)}"
        self.lines.append(f"for (int64_t {i} = {lower}; {i} < {upper}; {i} += {op.step.data}) {{")
        yielded = self.run(op.body.block)
        for k, (a, new) in enumerate(zip(carried, yielded, strict=True)):
            self.lines.append(f"{c_type(a.type)} next{k} = {new};")
        self.lines += [f"{self.names[a]} = next{k};" for k, a in enumerate(carried)] + ["}"]
        self.names |= {r: self.names[a] for r, a in zip(op.results, carried, strict=True)}


def source_of(module):
    kernels = [op for op in module.body.block.ops if isinstance(op, block.KernelOp)]
    return HEAD + "".join("\n".join(Emitter(k).lines) + "\n" for k in kernels)


def launcher(source):
    """A function that runs a kernel of C source, which it compiles to a library."""
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/kernels.so"
        subprocess.run([*COMMAND, "-o", library], input=source, text=True, check=True,
                       timeout=60)
        functions = ctypes.CDLL(library)

    def launch(kernel, buffers, sizes):
        pointers = (ctypes.c_void_p * len(buffers))(*(b.ctypes.data for b in buffers))
        numbers = (ctypes.c_int64 * len(sizes))(*(sizes[name] for name in kernel.size_names))
        functions[kernel.sym_name.data](pointers, numbers)

    return launch


class CScheduling(Scheduling):
    def schedule(self, kernel):
        return Schedule(tuple(Level("loop", axis) for axis in kernel.axes))


class CEmission(Emission):
    def emit(self, module, level):
        return source_of(module)


class CRunning(Running):
    def load(self, module, weights, report):
        return InterpretedHost(module, weights, launcher(source_of(module)))


class CTarget(Target):
    """The three parts that every target must have; all else has a default."""

    scheduling, emission, running = CScheduling, CEmission, CRunning


C = CTarget("c", ("c",), "C source, for any CPU that has a C compiler")
