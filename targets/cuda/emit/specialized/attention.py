"""Warp-specialized attention (see `kernel.py` for the scheme).

While a step's exponentials are computed, tensor cores multiply the previous step's weights by its
values. The two consumer groups also take turns: one multiplies while the other computes.

    def online_loads(...):                  def online_sums(..., group):
        for program in ...:                     for program in ...:
            load rows                               scores of the first keys, and their weights
            for k in ...:                           for k in ...:
                load keys of k                          scores of k; last weights by their values
                load values of k                        weights of k, once the scores are there
                                                        scale the sums, once they are there
                                                    last weights by their values
                                                    map, store

All groups loop as far as the last group's rows require; the extra scores get weights of zero.
"""

from __future__ import annotations

from collections.abc import Sequence

from dialects.block.programs import tile_type
from targets.cuda.emit.attention_form import attention_form
from targets.cuda.emit.specialized.copied import Copied
from targets.cuda.emit.specialized.kernel import GROUP, Emission, Ring
from targets.cuda.emit.values import Value


class AttentionEmission(Emission):
    """The text of an attention kernel with an online softmax."""

    def recognize(self) -> None:
        self.form = attention_form(self.kernel)
        self.epilogue, self.row_axis = self.form.epilogue, self.form.row_axis
        fresh = self.context.writer.fresh
        self.queries = Copied(self.form.queries, fresh("query_tiles"))
        self.keys = Copied(self.form.keys, fresh("key_tiles"))
        self.values = Copied(self.form.values, fresh("value_tiles"))
        self.memory = [(self.queries, self.groups), (self.keys, self.stages),
                       (self.values, self.stages)]
        self.query_ring, self.key_ring, self.value_ring = (
            Ring(count, *(fresh(f"{name}_{part}") for part in ("full", "free", "stage", "phase")))
            for name, count in (("query", 1), ("key", self.stages), ("value", self.stages)))
        self.rings = [self.query_ring, self.key_ring, self.value_ring]
        self.turns = fresh("turns") if self.groups == 2 else ""
        self.scores_layout, self.sums_layout = fresh("scores_layout"), fresh("sums_layout")

    # ------------------------------------------------------------------ steps
    @property
    def _first(self) -> int:
        first = self.form.loop.lower.data.constant
        assert first is not None
        return first

    @property
    def _step(self) -> int:
        step = self.form.loop.step.data.constant
        assert step
        return step

    def _end_of_steps(self) -> str:
        """The end of the loop over the steps of all groups' rows; it has at least one step."""
        context, loop = self.context, self.form.loop
        own, ends = context.values[self.row_id], list[Value]()
        for group in range(self.groups):
            context.values[self.row_id] = self.row(str(group))
            ends += context.indices([loop.upper.data], (), loop.indices)
        context.values[self.row_id] = own
        least = ends[0].low.constant if ends[0].low is not None else None
        texts = list(dict.fromkeys(e.text for e in ends))
        texts += [str(self._first + 1)] * (least is None or least <= self._first)
        end = texts[0]
        for text in texts[1:]:
            end = f"tl.maximum({end}, {text})"
        return end

    def _counter(self) -> str:
        loop = self.form.loop
        counter = self.context.writer.fresh(loop.counter.name_hint or "k")
        self.context.values[loop.counter] = Value(counter)
        return counter

    # ------------------------------------------------------------------ loads
    def loads(self) -> None:
        self.fill(self.query_ring, [(self.queries, self.query_ring.stage, True)])
        end = self._end_of_steps()
        self.context.writer.line(
            f"for {self._counter()} in range({self._first}, {end}, {self._step}):")
        with self.context.writer.indented():
            self.fill(self.key_ring, [(self.keys, self.key_ring.stage, False)])
            self.fill(self.value_ring, [(self.values, self.value_ring.stage, False)])

    # ------------------------------------------------------------------ sums
    def layouts(self) -> Sequence[str]:
        return [f"{name}: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], "
                f"warps_per_cta=[{GROUP}, 1], instr_shape=[16, {tile_type(dot.result).shape[1]}, "
                "16])" for name, dot in ((self.scores_layout, self.form.scores),
                                         (self.sums_layout, self.form.products))]

    def sums(self) -> None:
        context, line, form = self.context, self.context.writer.line, self.form
        fresh, loop = context.writer.fresh, form.loop
        for op in form.before:
            self.emit(op, context)
        self.carried = {a: fresh("carried") for k, a in enumerate(loop.body.block.args[1:])
                        if k != form.total}
        for argument, name in self.carried.items():
            first = context.values[loop.carried[argument.index - 1]]
            line(f"{name} = {first.text}")
            context.values[argument] = Value(name, first.shape)
        shape = tile_type(form.products.result).shape
        self.total, self.weights = fresh("sums"), fresh("weights")
        line(f"{self.total} = gl.zeros({list(shape)}, gl.float32, {self.sums_layout})")
        line(self.query_ring.is_full)
        self._step_of(str(self._first), is_first=True)
        counter, end = self._counter(), self._end_of_steps()
        line(f"for {counter} in range({self._first + self._step}, {end}, {self._step}):")
        with context.writer.indented():
            self._step_of(counter, is_first=False)
        self._release(self.query_ring)
        line(self.value_ring.is_full)
        line(self._last_products)
        line(f"{self.total} = warpgroup_mma_wait(0, deps=[{self.total}])")
        self._release(self.value_ring)
        for k, result in enumerate(loop.results):
            if k == form.total:
                context.values[result] = Value(self.total, shape)
            elif result.uses:
                name = self.carried[loop.body.block.args[1 + k]]
                context.values[result] = self._of_rows(Value(name, tile_type(result).shape))

    def _step_of(self, counter: str, is_first: bool) -> None:
        context, line, form = self.context, self.context.writer.line, self.form
        context.values[form.loop.counter] = Value(counter)
        scores = context.writer.fresh("scores")
        self._multiply(scores, is_first)
        line(f"{scores} = warpgroup_mma_wait({0 if is_first else 1}, deps=[{scores}])")
        self._release(self.key_ring)
        context.values[form.scores.result] = Value(scores, tile_type(form.scores.result).shape)
        for op in form.weights:
            self.emit(op, context)
        line(f"{self.weights} = gl.convert_layout({context.values[form.products.a].text}, "
             f"gl.DotOperandLayout(operand_index=0, parent={self.sums_layout}, k_width=2))")
        if not is_first:
            self._scale()
        for argument, name in self.carried.items():
            line(f"{name} = {context.values[form.loop.yielded[argument.index - 1]].text}")

    def _multiply(self, scores: str, is_first: bool) -> None:
        """Start the products of this step's scores, and those of the previous step's sums."""
        line, form = self.context.writer.line, self.form
        zeros = (f"gl.zeros({list(tile_type(form.scores.result).shape)}, gl.float32, "
                 f"{self.scores_layout})")
        line(self.key_ring.is_full)
        if self.turns:
            line(f"mbarrier.wait({self.turns}.index(group), turn)")
        line(f"{scores} = warpgroup_mma({self.queries.factor('group')}, "
             f"{self.keys.factor(self.key_ring.stage)}, {zeros}, use_acc=False, is_async=True)")
        if not is_first:
            line(self.value_ring.is_full)
            line(self._last_products)
        if self.turns:
            line(f"mbarrier.arrive({self.turns}.index({self.groups - 1} - group))")
            line("turn = turn ^ 1")

    @property
    def _last_products(self) -> str:
        return (f"{self.total} = warpgroup_mma({self.weights}, "
                f"{self.values.factor(self.value_ring.stage)}, {self.total}, is_async=True)")

    def _scale(self) -> None:
        """Wait for the sums once the weights are there, and scale them.

        The assembler moves arithmetic past a wait for products, but not past a wait at a barrier.
        Waiting once more for the values that are scaled keeps it in place.
        """
        context, line, form = self.context, self.context.writer.line, self.form
        line(self.value_ring.is_full)
        line(f"{self.total}, {self.weights} = "
             f"warpgroup_mma_wait(0, deps=[{self.total}, {self.weights}])")
        self._release(self.value_ring)
        inner = {v for op in form.scaling for v in op.results}
        total = form.loop.body.block.args[1 + form.total]
        context.values[total] = Value(self.total, tile_type(total).shape)
        kept = dict(context.values)
        for op in form.scaling:
            for value in set(op.operands) - inner - {total}:
                context.values[value] = self._of_rows(kept[value])
            self.emit(op, context)
        scaled = context.values[form.products.c].text
        context.values = kept
        line(f"{self.total} = {scaled}")

    def _of_rows(self, value: Value) -> Value:
        """Convert one number per row to the layout of the sums' rows."""
        name = self.context.writer.fresh("of_rows")
        self.context.writer.line(
            f"{name} = gl.convert_layout({value.text}, gl.SliceLayout(1, {self.sums_layout}))")
        return Value(name, value.shape)

    def _release(self, ring: Ring) -> None:
        """Mark the stage as free: nothing reads it any more."""
        self.context.writer.line(f"mbarrier.arrive({ring.free}.index({ring.stage}))")
        self.context.writer.line(ring.next)
