"""`strata.if` and `strata.loop` as LLVM text: native calls of other host functions.

For each buffer that it returns, a called function stores the address and the shape in words that
the caller provides. Every thread has its own words, with the same contents.

    loop:  words of the carried values <- the operands
    head:  go on?  -> body, exit
    body:  call; check for signals; append to the stacks; free what the previous call returned;
           words <- results; head
    exit:  results <- words; copies of the operands if there was no call
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from xdsl.ir import Operation, SSAValue

from dialects.host.calls import bound_sizes, varying_sizes
from dialects.strata.control import ControlOp, IfOp, LoopOp
from dialects.strata.sizes import defined_sizes
from dialects.strata.types import BufferType, Shaped, buffer_type
from dialects.symbolic.expr import Expr
from dialects.symbolic.symbol import Symbol
from targets.cpu.driver.function import FunctionText
from targets.cpu.driver.heap import append
from targets.cpu.driver.interrupt import goes_on, poll
from targets.cpu.runtime.checks import memory_check, signal_check, stack_check


class _Words(NamedTuple):
    """The words that hold the addresses and shapes of buffers, one after another from `base`."""

    base: str
    types: Sequence[BufferType]

    def at(self, k: int) -> int:
        return sum(1 + type_.rank for type_ in self.types[:k])


class ControlText(FunctionText):
    """Writes one function, including its calls of others."""

    def other(self, op: Operation) -> None:
        match op:
            case IfOp():
                self._if(op)
            case LoopOp():
                _LoopText(self, op).write()
                self.last_alone = False
            case _:
                super().other(op)

    # ------------------------------------------------------------------ if
    def _if(self, op: IfOp) -> None:
        w = self.writer
        words = self.words(_buffers(op.result_types))
        calls = [self.call_text(name, words.base, [self.pointers[v] for v in op.inputs],
                                [*self.sizes_of(name, op.inputs).values()]) for name in op.callees]
        test = self.flag(self.pointers[op.condition])
        then, otherwise, join = w.fresh("then"), w.fresh("else"), w.fresh("join")
        w.emit(f"br i1 {test}, label %{then}, label %{otherwise}")
        found: list[tuple[str, str]] = []
        for label, text in zip((then, otherwise), calls, strict=True):
            with w.block(label):
                found.append((w.assign(text), label))
                w.emit(f"br label %{join}")
        w.start_block(join)
        status = w.assign("phi i32 " + ", ".join(f"[ {s}, %{label} ]" for s, label in found))
        self.pass_on(status)
        self.last_alone = False
        for k, result in enumerate(op.results):
            self.pointers[result] = self.load("ptr", words.base, words.at(k))
        self.define(op, words)

    # ------------------------------------------------------------------ calls
    def words(self, types: Sequence[BufferType]) -> _Words:
        count = max(1, sum(1 + type_.rank for type_ in types))
        return _Words(self.writer.at_entry(f"alloca [{count} x i64], align 8"), types)

    def flag(self, pointer: str) -> str:
        """A boolean that all threads read."""
        self.sync()
        byte = self.writer.assign(f"load i8, ptr {pointer}")
        return self.writer.assign(f"icmp ne i8 {byte}, 0")

    def call_text(
        self, name: str, results: str, inputs: Sequence[str], sizes: Sequence[str]
    ) -> str:
        arguments = ["ptr %table", f"ptr {results}", "i64 %thread", "i64 %threads",
                     *(f"i64 {s}" for s in sizes), *(f"ptr {p}" for p in inputs)]
        return f"call i32 @{self.program.function_names[name]}({', '.join(arguments)})"

    def pass_on(self, status: str) -> None:
        """End this call, too, if a check failed in the called function."""
        w = self.writer
        failed, fail, go = w.assign(f"icmp ne i32 {status}, 0"), w.fresh("fail"), w.fresh("go")
        w.emit(f"br i1 {failed}, label %{fail}, label %{go}")
        w.start_block(fail)
        w.emit("ret i32 1")
        w.start_block(go)

    def sizes_of(
        self, name: str, inputs: Sequence[SSAValue], open_: Collection[Symbol] = ()
    ) -> dict[Symbol, str]:
        """The values of a function's sizes from the inputs' types, else the caller's.

        `open_`: sizes whose values the caller adds.
        """
        callee = self.program.functions[name]
        bound = bound_sizes(callee, [buffer_type(v) for v in inputs])
        return {s: self.scalar(bound.get(s, Expr.symbol(s)))
                for s in callee.size_names if s not in open_}

    def define(self, op: ControlOp, words: _Words) -> None:
        """Set the sizes that an operation defines, from the shapes in words."""
        names = {*defined_sizes(op)}
        for k, type_ in enumerate(words.types):
            for d, size in enumerate(type_.shape, 1):
                if size.as_symbol in names:
                    value = self.load("i64", words.base, words.at(k) + d)
                    self.sizes[size.as_symbol] = self.indices.symbol(value, 0)


def _buffers(types: Sequence[Shaped]) -> list[BufferType]:
    return [type_ for type_ in types if isinstance(type_, BufferType)]


class _LoopText:
    """Writes one loop into a function."""

    def __init__(self, text: ControlText, op: LoopOp):
        self.text, self.op, self.writer = text, op, text.writer
        self.body = text.program.functions[op.body.data]
        returned = [r for r in self.body.returned_types if r is not None]
        types = _buffers(op.result_types)
        self.count = len(op.carried)
        self.first = len(returned) - len(types)
        """1 if the body also returns whether to go on, else 0."""
        self.carried = text.words(types[: self.count])
        self.results = text.words(returned)
        self.stacks = text.words(types[self.count:])
        self.counter = self.writer.at_entry("alloca i64, align 8")
        self.going = self.writer.at_entry("alloca i1, align 1")

    def write(self) -> None:
        w, text = self.writer, self.text
        head, body, leave = w.fresh("head"), w.fresh("body"), w.fresh("leave")
        self._begin()
        trip = None if self.op.trip is None else text.scalar(self.op.trip.data)
        inputs = [text.pointers[v] for v in self.op.inputs]
        sizes = text.sizes_of(self.op.body.data, [*self.op.carried, *self.op.inputs],
                              self._varying())
        w.emit(f"br label %{head}")
        w.start_block(head)
        counter = w.assign(f"load i64, ptr {self.counter}")
        going = w.assign(f"load i1, ptr {self.going}")
        if trip is not None:
            more = w.assign(f"icmp slt i64 {counter}, {trip}")
            going = w.assign(f"and i1 {going}, {more}")
        w.emit(f"br i1 {going}, label %{body}, label %{leave}")
        with w.block(body):
            self._call(counter, inputs, sizes)
            self._keep(counter, trip if trip is not None and self.op.condition is None else "0")
            w.emit(f"br label %{head}")
        w.start_block(leave)
        self._end(counter)

    # ------------------------------------------------------------------ before
    def _begin(self) -> None:
        w, text = self.writer, self.text
        w.emit(f"store i64 0, ptr {self.counter}")
        going = "true" if self.op.condition is None else text.flag(
            text.pointers[self.op.condition])
        w.emit(f"store i1 {going}, ptr {self.going}")
        for k, value in enumerate(self.op.carried):
            self._store_value(self.carried, k, text.pointers[value],
                              [text.scalar(s) for s in buffer_type(value).shape])
        for k, type_ in enumerate(self.stacks.types):
            known = {*text.sizes}
            shape = [text.scalar(s) if s.symbols <= known else "0" for s in type_.shape]
            state, base = (text.allocate(Expr.of(n), self.op) for n in (16, 256))
            text.store(base, "ptr", state, 0)
            text.store("256", "i64", state, 1)
            self._store_value(self.stacks, k, state, shape)

    def _store_value(self, words: _Words, k: int, pointer: str, shape: Sequence[str]) -> None:
        self.text.store(pointer, "ptr", words.base, words.at(k))
        for d, size in enumerate(shape, 1):
            self.text.store(size, "i64", words.base, words.at(k) + d)

    def _varying(self) -> dict[Symbol, int]:
        """Sizes of the body that may differ between calls, and the word that holds each."""
        places = varying_sizes(self.op, self.body, {*self.text.sizes})
        return {self.op.step_symbol: -1,
                **{s: self.carried.at(k) + 1 + d for s, (k, d) in places.items()}}

    # ------------------------------------------------------------------ one call
    def _call(
        self, counter: str, inputs: Sequence[str], sizes: Mapping[Symbol, str]
    ) -> None:
        w, text = self.writer, self.text
        values = {**sizes}
        values |= {s: counter if word < 0 else text.load("i64", self.carried.base, word)
                  for s, word in self._varying().items()}
        carried = [text.load("ptr", self.carried.base, self.carried.at(k))
                   for k in range(self.count)]
        status = w.assign(text.call_text(
            self.op.body.data, self.results.base, [*carried, *inputs],
            [values[s] for s in self.body.size_names]))
        text.pass_on(status)
        number = w.assign(text.native(poll, "%table", "%thread"))
        text.last_alone = False
        text.sync()
        more = w.assign(text.native(goes_on, "%table", number))
        text.check(more, signal_check(self.op), [])

    def _keep(self, counter: str, calls: str) -> None:
        """Pass the results of a call to the next one. `calls`: the number of calls, 0 if
        unknown."""
        w, text = self.writer, self.text
        if self.first:
            flag = text.load("ptr", self.results.base, 0)
            w.emit(f"store i1 {text.flag(flag)}, ptr {self.going}")
            text.sync()
            text.release(flag)
        for k, _ in enumerate(self.stacks.types):
            self._append(k, counter, calls)
        self._free_carried(counter)
        for k in range(self.count):
            source = self.results.at(self.first + k)
            shape = [text.load("i64", self.results.base, source + 1 + d)
                     for d in range(self.carried.types[k].rank)]
            self._store_value(self.carried, k, text.load("ptr", self.results.base, source), shape)
        w.emit(f"store i64 {w.assign(f'add i64 {counter}, 1')}, ptr {self.counter}")

    def _append(self, k: int, counter: str, calls: str) -> None:
        w, text, place = self.writer, self.text, self.results.at(self.first + self.count + k)
        type_ = self.stacks.types[k]
        pointer = text.load("ptr", self.results.base, place)
        size, same = str(type_.dtype.itemsize), w.assign(f"icmp eq i64 {counter}, 0")
        changed = "false"
        for d in range(1, type_.rank):
            found = text.load("i64", self.results.base, place + d)
            before = text.load("i64", self.stacks.base, self.stacks.at(k) + 1 + d)
            differs = w.assign(f"icmp ne i64 {found}, {before}")
            changed = w.assign(f"or i1 {changed}, {differs}")
            size = w.assign(f"mul i64 {size}, {found}")
            text.store(found, "i64", self.stacks.base, self.stacks.at(k) + 1 + d)
        holds = w.assign(f"select i1 {same}, i1 true, i1 {w.assign(f'xor i1 {changed}, true')}")
        text.check(holds, stack_check(self.op), [])
        state = text.load("ptr", self.stacks.base, self.stacks.at(k))
        w.emit(text.native(append, "%table", state, counter, pointer, size, calls, "%thread"))
        text.sync()
        there = w.assign(f"icmp ne ptr {text.load('ptr', state, 0)}, null")
        text.check(there, memory_check(self.op), [size])
        text.release(pointer)

    def _free_carried(self, counter: str) -> None:
        """Free what the previous call returned; the first call's inputs do not belong to the loop.
        """
        w, text = self.writer, self.text
        if not self.count:
            return
        free, go = w.fresh("free"), w.fresh("go")
        w.emit(f"br i1 {w.assign(f'icmp eq i64 {counter}, 0')}, label %{go}, label %{free}")
        with w.block(free):
            for k in range(self.count):
                text.release(text.load("ptr", self.carried.base, self.carried.at(k)))
            w.emit(f"br label %{go}")
        w.start_block(go)

    # ------------------------------------------------------------------ after
    def _end(self, counter: str) -> None:
        text, results = self.text, list(self.op.results)
        for k, _ in enumerate(self.stacks.types):
            state = text.load("ptr", self.stacks.base, self.stacks.at(k))
            text.last_alone = False
            text.sync()
            text.pointers[results[self.count + k]] = text.load("ptr", state, 0)
            text.sync()
            text.release(state)
            text.store(counter, "i64", self.stacks.base, self.stacks.at(k) + 1)
        self._own_carried(counter)
        for k in range(self.count):
            text.pointers[results[k]] = text.load("ptr", self.carried.base, self.carried.at(k))
        text.define(self.op, self.carried)
        text.define(self.op, self.stacks)

    def _own_carried(self, counter: str) -> None:
        """Copy the operands if there was no call."""
        w, text = self.writer, self.text
        if not self.count:
            return
        sizes = [text.indices.scalar(text.byte_size(buffer_type(v))) for v in self.op.carried]
        copy, go = w.fresh("copy"), w.fresh("go")
        w.emit(f"br i1 {w.assign(f'icmp eq i64 {counter}, 0')}, label %{copy}, label %{go}")
        with w.block(copy):
            for k, (value, size) in enumerate(zip(self.op.carried, sizes, strict=True)):
                new = text.allocate_bytes(size, self.op)
                text.copy(new, text.pointers[value], size)
                text.store(new, "ptr", self.carried.base, self.carried.at(k))
            w.emit(f"br label %{go}")
        w.start_block(go)
