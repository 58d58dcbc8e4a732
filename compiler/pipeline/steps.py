"""The whole flow, from an imported model to blocks of tiles, on one page.

Each line is one pass, and its comment says why it stands there. A step's level is the level of the
module once the pass has run, so the step that changes the level is the first of the new one.
`--passes` edits this list, `--to` ends it, and a dump that is read again goes on behind its pass.
What `needed` tells of a pass is why no level after its own can do without it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """A pass, as `--passes` spells it (with options), and the level that holds after it."""

    level: str
    spec: str
    needed: str = ""
    """Why it cannot be left out, where anything is to follow at a later level."""
    rounds: bool = False
    """Whether it rounds on purpose, so that results differ from then on; told by `plan`."""

    @property
    def name(self) -> str:
        """The pass's name without options."""
        return self.spec.partition("{")[0]


PIPELINE: tuple[Step, ...] = (
    # ------------------------------------------------------------------ graph: what is computed
    Step("graph", "graph-fold-sizes"),  # first: known sizes let all later passes decide more
    Step("graph", "graph-quantize-contractions"),  # before constants are folded into floats
    Step("graph", "graph-sign-products"),  # before their zero points are folded into weights
    Step("graph", "graph-delay-scales"),  # before constants are folded, while weights are bytes
    Step("graph", "graph-fold-constants"),  # before the rules, which look for constant operands
    Step("graph", "graph-sink-constants"),  # so that bodies fold, and pack, what they read
    Step("graph", "graph-simplify"),  # on whole operators: some rules know softmax or clip
    Step("graph", "graph-decompose",  # now that no rule needs a composite operator any more
         needed="composite operators, such as softmax, have no nests of their own"),
    Step("graph", "graph-tile-groups"),  # before its tables' constants are folded, and merged
    Step("graph", "graph-fold-constants"),  # again: parts of batch norm have constant operands
    Step("graph", "graph-simplify"),  # again: the parts meet their new neighbours
    Step("graph", "graph-narrow-products"),  # when scales have become part of weights
    Step("graph", "graph-fold-constants"),  # and again: weights that are rounded now
    Step("graph", "graph-join-groups"),  # on filters that are constants, of the type they keep
    Step("graph", "graph-shorten-constants"),  # when all that computes constants has done so
    Step("graph", "graph-cse"),  # after simplifying, which makes equal things look equal
    Step("graph", "graph-dce"),  # last: removes what all of these left unused
    # ------------------------------------------------------------------ loop: how it is computed
    Step("loop", "graph-to-loop",  # on few, simple operators: one nest or a few for each
         needed="kernels are made of nests, not of operators"),
    Step("loop", "loop-assume-bounds",  # while every nest still is one operator's, with its name
         needed="reads beyond a tensor's end would go unnoticed"),
    Step("loop", "loop-simplify-nests",  # before nests meet: rules and schedules know this form
         needed="later passes know no axes of one element"),
    Step("loop", "loop-fuse"),  # at once: the fewer nests, the less all later passes have to do
    Step("loop", "loop-narrow-factors"),  # what is left between: conversions that fusion kept apart
    Step("loop", "loop-widen-factors"),  # likewise, before windows are shortened, which takes f32
    Step("loop", "loop-assign-layouts"),  # while no kernel's arguments are in the way
    Step("loop", "loop-winograd"),  # on final layouts, while a convolution is one nest
    Step("loop", "loop-split-reductions"),  # when the order in memory is known, before kernels
    Step("loop", "loop-split-products"),  # likewise: what follows joins the sum of the parts
    Step("loop", "loop-prove-writes"),  # while what is not proven can be filled by a nest
    Step("loop", "loop-outline",  # which nests share a kernel depends on what fusion left
         needed="nests get buffers as parts of kernels only"),
    Step("loop", "loop-join-rows"),  # on kernels: what is between them stays in a program
    Step("loop", "loop-join-online"),  # likewise; what is between them never is in memory
    Step("loop", "loop-split-online"),  # joined kernels of few rows: parts are kernels of their own
    Step("loop", "loop-collapse-axes"),  # before axes get tiles: long axes are tiled better
    Step("loop", "loop-prepare-kernels"),  # the target's own wishes, on the axes that remain
    Step("loop", "loop-apply-tuned"),  # before packing, which follows from a schedule
    Step("loop", "loop-pack-operands"),  # when axes are final, for panels are cut along them
    Step("loop", "loop-lift-constants"),  # when panels are packed, which need to know constants
    Step("loop", "loop-deduplicate-kernels"),  # before scheduling: each kernel is decided once
    Step("loop", "loop-schedule",  # last: rules look at the kernel as it will be lowered
         needed="a kernel without a schedule has no tiles; --schedule gives it one"),
    Step("loop", "loop-prove-writes"),  # again: on all that passes on kernels have made of it
    # ------------------------------------------------------------------ host: in which memory
    Step("host", "host-bufferize",  # kernels are final, so what they pass on is a buffer each
         needed="kernels on tiles read and write buffers"),
    Step("host", "host-plan-buffers"),  # when all buffers and the order of launches are known
    # ------------------------------------------------------------------ block: kernels on tiles
    Step("block", "loop-to-block",  # now that a kernel and its schedule say all that it needs
         needed="target code is made of tiles, not of nests"),
    Step("block", "block-prefetch-operands"),  # on the loops and addresses that really are
    Step("block", "block-expand-floats"),  # so that dumps before it read as casts
    Step("block", "block-prove-bounds"),  # on the accesses that become code, all of them
    Step("block", "block-check-accesses"),  # last, and only on demand: of what really runs
)
