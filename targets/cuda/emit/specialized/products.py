"""Warp-specialized products (see `kernel.py` for the scheme).

    def contract_loads(...):                def contract_sums(..., group):
        for program in ...:                     for program in ...:
            for k in ...:                           for k in ...:
                wait until a stage is free              wait until a stage is full
                load the factors of k into it           multiply; free the stage before
                                                    map, store
"""

from __future__ import annotations

from collections.abc import Sequence

from targets.cuda.emit.specialized.copied import Copied
from targets.cuda.emit.specialized.form import Specialized, specialized_form
from targets.cuda.emit.specialized.kernel import GROUP, Emission, Ring
from targets.cuda.emit.values import Value
from targets.cuda.errors import EmitError


class ProductEmission(Emission):
    """The text of a kernel that sums products."""

    def recognize(self) -> None:
        self.form: Specialized = specialized_form(self.kernel)
        self.epilogue, self.row_axis = self.form.epilogue, -2
        fresh = self.context.writer.fresh
        self.left = Copied(self.form.left, fresh("left_tiles"))
        self.right = Copied(self.form.right, fresh("right_tiles"))
        self.memory = [(self.left, self.stages * self.groups), (self.right, self.stages)]
        self.ring = Ring(self.stages, fresh("full"), fresh("free"), "stage", "phase")
        self.rings = [self.ring]

    @property
    def _steps(self) -> range:
        """The counter values of the loop over the sum."""
        loop = self.form.loop
        lower, upper, step = (e.data.constant for e in (loop.lower, loop.upper, loop.step))
        assert lower is not None and upper is not None and step
        return range(lower, upper, step)

    def loads(self) -> None:
        self.context.writer.line(f"for {self._counter()} in {self._steps}:")
        with self.context.writer.indented():
            self.fill(self.ring, [(self.left, "stage", True), (self.right, "stage", False)])

    def _counter(self) -> str:
        loop = self.form.loop
        counter = self.context.writer.fresh(loop.counter.name_hint or "k")
        self.context.values[loop.counter] = Value(counter)
        return counter

    # ------------------------------------------------------------------ sums
    def layouts(self) -> Sequence[str]:
        depth = 256 // (8 * self.left.tile.width)
        return ["layout: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta="
                f"[{GROUP}, 1], instr_shape=[16, {min(self.form.columns, 256)}, {depth}])"]

    def sums(self) -> None:
        rows, columns = self.form.rows, self.form.columns
        total = self.context.writer.fresh("sums")
        zeros = f"gl.zeros([{rows}, {columns}], gl.float32, layout)"
        self.context.writer.line(f"{total} = {zeros}")
        if self._part == len(self._steps):
            self._multiply(total)
        else:
            self._multiply_in_parts(total, zeros)
        self.context.values[self.form.loop.results[0]] = Value(total, (rows, columns))

    @property
    def _part(self) -> int:
        """After how many steps a sum with fewer bits than f32 is added to the total; the number
        divides that of all steps."""
        steps, promote = len(self._steps), self.context.promote
        if not promote or promote >= steps * self._steps.step:
            return steps
        if promote < self._steps.step:
            raise EmitError(f"sums of {promote} products cannot be made of steps of "
                            f"{self._steps.step}")
        return max(n for n in range(1, promote // self._steps.step + 1) if steps % n == 0)

    @property
    def _factors(self) -> str:
        """The tiles of one step that a group multiplies."""
        return f"{self.left.factor(self.own('stage', 'group'))}, {self.right.factor('stage')}"

    def _multiply(self, sums: str) -> None:
        """Add the products of all steps. A step's stage is freed when the next step has started."""
        line = self.context.writer.line
        counter = self._counter()
        line(f"for {counter} in {self._steps}:")
        with self.context.writer.indented():
            line(self.ring.is_full)
            line(f"{sums} = warpgroup_mma({self._factors}, {sums}, is_async=True)")
            line(f"{sums} = warpgroup_mma_wait(1, deps=[{sums}])")
            line(f"mbarrier.arrive({self._preceding}, pred={counter} > {self._steps.start})")
            line(self.ring.next)
        line(f"{sums} = warpgroup_mma_wait(0, deps=[{sums}])")
        line(f"mbarrier.arrive({self._preceding})")

    def _multiply_in_parts(self, total: str, zeros: str) -> None:
        """Add the products of all steps, a few steps at a time."""
        line, indented = self.context.writer.line, self.context.writer.indented
        fresh = self.context.writer.fresh
        sums, part, step = fresh("part"), fresh("k"), fresh("step")
        line(f"for {part} in range({len(self._steps) // self._part}):")
        with indented():
            line(f"{sums} = {zeros}")
            line(f"for {step} in gl.static_range({self._part}):")
            with indented():
                line(self.ring.is_full)
                line(f"{sums} = warpgroup_mma({self._factors}, {sums}, use_acc={step} > 0, "
                     "is_async=True)")
                line(f"if {step} > 0:")
                with indented():
                    line(f"{sums} = warpgroup_mma_wait(1, deps=[{sums}])")
                    line(f"mbarrier.arrive({self._preceding})")
                line(self.ring.next)
            line(f"{sums} = warpgroup_mma_wait(0, deps=[{sums}])")
            line(f"mbarrier.arrive({self._preceding})")
            line(f"{total} = {total} + {sums}")

    @property
    def _preceding(self) -> str:
        """The barrier of the previous stage, which no product reads any more."""
        return f"{self.ring.free}.index(preceding(stage, {self.stages}))"
