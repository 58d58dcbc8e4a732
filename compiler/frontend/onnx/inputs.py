"""The model's inputs: their types, with the sizes that the model and the user name.

    input x: float[batch, 3, ?, -1]    ->  %x: f32[batch, 3, x_d2, x_d3]
    --dim batch=8                      ->  %x: f32[8, 3, x_d2, x_d3]
    --shape x=1x3xheightx224           ->  %x: f32[1, 3, height, 224]

A size that the model writes as an expression of other sizes, such as `past + 1`, becomes such an
expression.

A sequence or an optional becomes several inputs (sequences.py): `x.data`, `x.shapes`.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import field

import onnx
from xdsl.ir import Attribute

from compiler.diagnostics import some_of
from compiler.frontend import ImportOptions
from compiler.frontend.faults import Fault, Faults
from compiler.frontend.onnx.element_types import element_type
from compiler.frontend.onnx.sequences import Form
from compiler.suggestions import guess
from dialects.records import dataclass
from dialects.strata.types import Array, TensorType, element_of, i1, i64, tensor
from dialects.symbolic.expr import Expr
from dialects.symbolic.expr_syntax import expr_of
from dialects.symbolic.symbol import Symbol

_UNNAMED = re.compile(r"[-+?*.\d]*", re.ASCII)
"""What models write for a dim without a name: nothing, `?`, or `-1`. Such dims may differ from each
other.
"""

Declared = list["int | str"]
"""The sizes of one input, an integer or a name each."""


@dataclass
class Inputs:
    """The inputs that a run must give, under the user's options."""

    infos: Sequence[onnx.ValueInfoProto]
    options: ImportOptions
    faults: Faults
    declared: dict[str, Declared] = field(default_factory=dict[str, Declared])
    replaced: dict[str, int | str] = field(default_factory=dict[str, "int | str"])
    structured: dict[str, Form] = field(default_factory=dict[str, Form])
    """The inputs that are not plain tensors."""

    taken: set[str] = field(init=False)
    """The names of sizes: the model's own, and new ones."""

    def __post_init__(self) -> None:
        self.taken = {d.dim_param for i in self.infos for d in _shape_of(i.type)}

    def types(self) -> dict[str, TensorType]:
        """The type of every tensor input. Problems of inputs and options are added to `faults`."""
        self._read_shapes()
        self._read_dims()
        types: dict[str, TensorType] = {}
        for info in self.infos:
            if info.name in self.options.constants:
                continue
            if info.type.WhichOneof("value") in ("sequence_type", "optional_type"):
                types |= self._parts(info)
                continue
            if info.type.tensor_type.elem_type == onnx.TensorProto.STRING:
                rank = len(self.declared.get(info.name, ()))
                self.structured[info.name] = Form("texts", i64, rank)
            element = i64 if info.name in self.structured else self._element(info)
            if element is not None and info.name in self.declared:
                sizes = [self._size(d) for d in self.declared[info.name]]
                types[info.name] = tensor(element, sizes)
        return types

    def _parts(self, info: onnx.ValueInfoProto) -> dict[str, TensorType]:
        """The tensors that represent a sequence or an optional."""
        try:
            form, parts = self._structure(info.name, info.type)
        except Fault as fault:
            self.faults.add(f"input '{info.name}': {fault.what}", hint=fault.hint)
            return {}
        self.structured[info.name] = form
        return parts

    def _structure(self, name: str, type_: onnx.TypeProto) -> tuple[Form, dict[str, TensorType]]:
        if type_.HasField("optional_type"):
            form, parts = self._structure(name, type_.optional_type.elem_type)
            if form.kind == "optional":
                raise Fault("an optional of an optional is not supported")
            return Form("optional", inner=form), {f"{name}.present": tensor(i1, []), **parts}
        content = type_.sequence_type.elem_type if type_.HasField("sequence_type") else type_
        declared = content.tensor_type
        if not declared.HasField("shape"):
            raise Fault("the number of dims of its tensors is not declared",
                        "declare the shape of the sequence's elements, with open sizes")
        element, rank = element_type(declared.elem_type), len(declared.shape.dim)
        if content is type_:
            sizes = [Expr.size(self._free(f"{name}_d{k}")) for k in range(rank)]
            return Form("tensor", element, rank), {name: tensor(element, sizes)}
        total, length = (Expr.size(self._free(f"{name}_{what}"))
                         for what in ("total", "length"))
        return Form("run", element, rank), {
            f"{name}.data": tensor(element, [total]), f"{name}.shapes": tensor(i64, [length, rank])}

    def constants(self) -> dict[str, Array]:
        """The contents of the inputs that become constants. Problems are added to `faults`."""
        found: dict[str, Array] = {}
        declared = {i.name: i for i in self.infos}
        for name, array in self.options.constants.items():
            if name not in declared:
                self.faults.add(f"contents are given for '{name}', which is not an input of the "
                                "model")
            elif (element := self._element(declared[name])) is not None:
                if element_of(array.dtype) != element:
                    self.faults.add(f"input '{name}' has elements of type {element}; the given "
                                    f"contents have {element_of(array.dtype)}")
                found[name] = array
        return found

    def _element(self, info: onnx.ValueInfoProto) -> Attribute | None:
        kind = info.type.WhichOneof("value") or "unknown"
        if kind != "tensor_type":
            self.faults.add(f"input '{info.name}' is a {kind.removesuffix('_type')}; only plain "
                            "tensors are supported")
            return None
        try:
            return element_type(info.type.tensor_type.elem_type)
        except Fault as fault:
            self.faults.add(f"input '{info.name}': {fault.what}", hint=fault.hint)
            return None

    # ------------------------------------------------------------------ declarations and options
    def _read_shapes(self) -> None:
        """Fill `declared`, and `replaced` with what `--shape` gives for the model's names."""
        known = [i.name for i in self.infos]
        for name in sorted(self.options.shapes.keys() - set(known)):
            self.faults.add(f"--shape names '{name}', which is not an input of the model",
                            hint=f"{guess(name, known)}the inputs are {some_of(known, 20)}")
        for info in self.infos:
            given = self.options.shapes.get(info.name)
            if info.type.tensor_type.HasField("shape"):
                self.declared[info.name] = self._own_sizes(info)
                self._match(info.name, given or ())
            elif given is not None:
                self.declared[info.name] = list(given)
            elif info.type.WhichOneof("value") == "tensor_type":
                self.faults.add(f"input '{info.name}' has neither a shape nor a number of dims",
                                hint=f"give one, for instance --shape {info.name}=1x3x224x224")

    def _match(self, name: str, given: Sequence[int | str]) -> None:
        """Replace the model's sizes everywhere by those that `--shape` gives for an input."""
        own = self.declared[name]
        if given and len(given) != len(own):
            self.faults.add(f"--shape gives input '{name}' {len(given)} dims; the model has "
                            f"{len(own)}: {'x'.join(map(str, own))}")
            return
        for k, (size, declared) in enumerate(zip(given, own, strict=False)):
            before = declared if isinstance(declared, int) else self.replaced.get(declared, size)
            if before != size:
                self.faults.add(f"--shape gives dim {k} of input '{name}' the size {size}, but it "
                                f"is {before}", hint="a size that is fixed cannot be changed")
            elif isinstance(size, int) and size < 1:
                self.faults.add(f"--shape gives dim {k} of input '{name}' the size {size}; a size "
                                "must be at least 1")
            elif isinstance(declared, str):
                self.replaced[declared] = size

    def _read_dims(self) -> None:
        """Replace names of sizes by the values that `--dim` gives."""
        names = {s for shape in self.declared.values() for s in shape if isinstance(s, str)}
        names |= {s for s in self.replaced.values() if isinstance(s, str)}
        for name, value in self.options.dims.items():
            meant = {name} & names
            if value < 1:
                self.faults.add(f"--dim {name}={value}: a size must be at least 1")
            if not meant:
                listed = some_of(sorted(names), 20) or "all constant"
                self.faults.add(f"--dim names '{name}', which is not a size of the model",
                                hint=f"{guess(name, names)}its sizes are {listed}")
            for size in sorted(meant):
                if self.replaced.setdefault(size, value) not in (value, *names):
                    self.faults.add(f"--dim {name}={value}, but --shape gives it the size "
                                    f"{self.replaced[size]}")

    def _own_sizes(self, info: onnx.ValueInfoProto) -> Declared:
        """The sizes of an input as the model declares them.

        A dim without a name gets one from the input and the index of the dim.
        """
        sizes: Declared = []
        for k, dim in enumerate(info.type.tensor_type.shape.dim):
            if not _UNNAMED.fullmatch(dim.dim_param):
                sizes.append(dim.dim_param)
            elif dim.dim_value > 0:
                sizes.append(dim.dim_value)
            else:
                sizes.append(self._free(f"{info.name}_d{k}"))
        return sizes

    def _free(self, wanted: str) -> str:
        """A name for a size that has none in the model, different from all others."""
        name, count = wanted, 2
        while name in self.taken:
            name, count = f"{wanted}_v{count}", count + 1
        self.taken.add(name)
        return name

    # ------------------------------------------------------------------ expressions
    def _size(self, size: int | str) -> Expr:
        for _ in range(2):  # `--shape` may give another name, and `--dim` a value for that name
            size = self.replaced.get(size, size) if isinstance(size, str) else size
        if isinstance(size, int):
            return Expr.of(size)
        derived = self._derived(size)
        return Expr.size(size) if derived is None else derived

    def _derived(self, text: str) -> Expr | None:
        """A size that the model writes as an expression of sizes that occur elsewhere; None for
        others.
        """
        try:
            parsed = expr_of(text)
        except ValueError:
            return None
        plain = {Symbol.size(s) for shape in self.declared.values() for s in shape
                 if isinstance(s, str)}
        if parsed.as_symbol is not None or not parsed.symbols <= plain:
            return None
        return parsed.substitute({s: self._size(s.name) for s in parsed.symbols})


def _shape_of(type_: onnx.TypeProto) -> Sequence[onnx.TensorShapeProto.Dimension]:
    """The dims that a type declares, also those of a sequence's or an optional's tensors."""
    while (kind := type_.WhichOneof("value")) in ("sequence_type", "optional_type"):
        type_ = getattr(type_, kind).elem_type
    return type_.tensor_type.shape.dim


def defaults_replaced(model: onnx.ModelProto, options: ImportOptions) -> set[str]:
    """The inputs with a default that the options name. They stay inputs, or get other contents.

    An initializer of an input's name is its default from IR version 4 on, and a constant before
    (ONNX, IR.md). The others stay constants, with which weights can be packed and folded.
    """
    return {*options.shapes, *options.constants} if model.ir_version >= 4 else set()


def defaults_of(model: onnx.ModelProto, given: Container[str]) -> dict[str, Sequence[int]]:
    """The shapes of the inputs whose default makes them constants."""
    inputs = {i.name for i in model.graph.input} if model.ir_version >= 4 else set[str]()
    return {t.name: t.dims for t in model.graph.initializer
            if t.name in inputs and t.name not in given}
