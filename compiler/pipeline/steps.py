"""The whole pipeline, from an imported model to blocks of tiles, on one page.

Each line is one pass, and its comment says why the pass runs at that point. A step's level is the
level of the module after the pass, so the step that changes the level is the first of the new one.
`--passes` edits this list, and `--to` ends it. A dump that is read again continues after its pass.
`needed` says why no later level can do without the pass. `group` is the group of optimizations to
which a pass belongs (`compiler/pipeline/strategies.py`): `--strategy`, `--with` and `--without`
choose among groups. A pass without a group always runs.
"""

from __future__ import annotations

from dialects.records import dataclass


@dataclass(frozen=True)
class Step:
    """A pass, as `--passes` spells it (with options), and the level that holds after it."""

    level: str
    spec: str
    group: str = ""
    """The group of optimizations; empty for a pass that no strategy leaves out."""
    needed: str = ""
    """Why the pass cannot be left out if a later level is to follow."""
    apart: str = ""
    """The pass as it runs if its group is left out; empty if it does not run then."""
    rounds: bool = False
    """Whether the pass rounds on purpose, so that results differ after it; `plan` reports that."""

    @property
    def name(self) -> str:
        """The pass's name without options."""
        return self.spec.partition("{")[0]


PIPELINE: tuple[Step, ...] = (
    # ------------------------------------------------------------------ graph: what is computed
    Step("graph", "graph-fold-sizes"),  # first: known sizes let all later passes decide more
    Step("graph", "graph-call-layers",  # before any pass that rewrites: each layer is seen once
         "share"),
    Step("graph", "graph-quantize-contractions",  # before dequantized weights fold into floats
         "quantize"),
    Step("graph", "graph-sign-products", "quantize"),  # before zero points are folded into weights
    Step("graph", "graph-delay-scales",  # before constant folding, while weights are still bytes
         "quantize"),
    Step("graph", "graph-fold-constants",  # before the rules, which look for constant operands
         "fold"),
    Step("graph", "graph-sink-constants",  # so that functions can fold and pack their constants
         "fold"),
    Step("graph", "graph-simplify", "simplify"),  # on whole operators: rules may know softmax
    Step("graph", "graph-annotate-shards"),  # with --mesh; on few, whole operators with constants
    Step("graph", "graph-partition"),  # at once: all later passes see the program of one rank
    Step("graph", "graph-decompose",  # after all rules that match composite operators
         needed="composite operators, such as softmax, have no nests of their own"),
    Step("graph", "graph-tile-groups",  # before its tables' constants are folded and merged
         "split"),
    Step("graph", "graph-fold-constants",  # again: parts of batch norm have constant operands
         "fold"),
    Step("graph", "graph-simplify", "simplify"),  # again: the parts meet their new neighbours
    Step("graph", "graph-inline-layers",  # after the last rules, which show what borders cost
         "share"),
    Step("graph", "graph-narrow-products", "precision"),  # once scales are folded into weights
    Step("graph", "graph-fold-constants", "fold"),  # once more: weights are rounded now
    Step("graph", "graph-join-groups", "split"),  # on constant filters in their final type
    Step("graph", "graph-shorten-constants",  # after the last pass that computes constants
         "fold"),
    Step("graph", "graph-pack-codes",  # likewise: what takes codes apart would be folded again
         "quantize"),
    Step("graph", "graph-carry-stacks",  # once bodies are short, before what it adds is merged
         "one-launch"),
    Step("graph", "graph-cse",  # after simplifying, which makes equal operations look equal
         "simplify"),
    Step("graph", "graph-dce"),  # removes what all of these left unused
    Step("graph", "graph-share-layers",  # last: layers are equal but for constants, now final
         "share"),
    # ------------------------------------------------------------------ loop: how it is computed
    Step("loop", "graph-to-loop",  # on few, simple operators: one nest or a few for each
         needed="kernels are made of nests, not of operators"),
    Step("loop", "loop-assume-bounds",  # while every nest still belongs to one operator
         needed="reads beyond a tensor's end would go unnoticed"),
    Step("loop", "loop-simplify-nests",  # before fusion: rules and schedules rely on this form
         needed="later passes know no axes of one element"),
    Step("loop", "loop-fuse",  # early: fewer nests mean less work for all later passes
         "fuse", apart="loop-fuse{across=false}"),
    Step("loop", "loop-narrow-factors",  # on conversions that fusion could not inline
         "precision"),
    Step("loop", "loop-widen-factors",  # likewise, before loop-winograd, which needs f32
         "precision"),
    Step("loop", "loop-assign-layouts", "layout"),  # while no kernel arguments fix a layout
    Step("loop", "loop-winograd", "winograd"),  # on final layouts, while a convolution is one nest
    Step("loop", "loop-split-reductions",  # once the order in memory is known, before kernels
         "split"),
    Step("loop", "loop-split-products", "split"),  # likewise: epilogues join the sum of the parts
    Step("loop", "loop-prove-writes"),  # while a nest can still fill what is not proven
    Step("loop", "loop-outline",  # after fusion, which determines the nests to group
         "fuse", apart="loop-outline{across=false}",
         needed="nests get buffers as parts of kernels only"),
    Step("loop", "loop-join-rows",  # on kernels: a program keeps the intermediates of its rows
         "chain", apart="loop-join-rows{across=false}"),
    Step("loop", "loop-join-online",  # likewise, but without materializing intermediates
         "chain", apart="loop-join-online{across=false}"),
    Step("loop", "loop-join-recomputed",  # on what is left: a matrix with several readers
         "chain", apart="loop-join-recomputed{across=false}"),
    Step("loop", "loop-split-online",  # joined kernels of few rows: parts become kernels
         "chain", apart="loop-split-online"),
    Step("loop", "loop-collapse-axes",  # before axes get tiles: long axes are tiled better
         "schedule"),
    Step("loop", "loop-prepare-kernels",  # the target's own rewrites of the remaining axes
         "schedule"),
    Step("loop", "loop-apply-tuned"),  # before packing, which follows from a schedule
    Step("loop", "loop-pack-operands",  # once axes are final, because panels are cut along them
         "pack"),
    Step("loop", "loop-lift-constants", "fold"),  # after packing, which needs to see constants
    Step("loop", "loop-deduplicate-kernels",  # before scheduling: each kernel is scheduled once
         "share"),
    Step("loop", "loop-schedule",  # rules see the kernel as it will be lowered
         needed="a kernel without a schedule has no tiles; --schedule gives it one"),
    Step("loop", "loop-inline-layers",  # last: no later pass transforms kernels for each call
         needed="buffers are planned for a function and all layers that it calls"),
    Step("loop", "loop-bound-walks"),  # once schedules fix blocks of rows, for all layers at once
    Step("loop", "loop-prove-writes"),  # again, for the writes that passes on kernels changed
    Step("loop", "loop-unroll-loops",  # on final kernels, which all iterations launch
         "one-launch"),
    # ------------------------------------------------------------------ host: in which memory
    Step("host", "host-bufferize",  # kernels are final, so each value between them is a buffer
         needed="kernels on tiles read and write buffers"),
    Step("host", "host-gather-launches",  # while no buffers share memory
         "one-launch"),
    Step("host", "host-plan-buffers",  # once all buffers and the order of launches are known
         "memory"),
    Step("host", "host-vary-schedules",  # where launches have sizes and nothing else is decided
         "schedule"),
    # ------------------------------------------------------------------ block: kernels on tiles
    Step("block", "loop-to-block",  # once a kernel and its schedule determine the program
         needed="target code is made of tiles, not of nests"),
    Step("block", "block-split-tiles",  # at once: all later passes see the tiles that code has
         needed="a target may have tiles of powers of two only"),
    Step("block", "block-prefetch-operands", "schedule"),  # on the final loops and addresses
    Step("block", "block-chain-launches",  # on planned memory, of kernels that are complete
         "chain"),
    Step("block", "block-expand-floats"),  # late, so that earlier dumps show plain casts
    Step("block", "block-prove-bounds"),  # on all accesses as they become code
    Step("block", "block-enclose-loops",  # likewise, while each kernel is one part
         "one-launch"),
    Step("block", "block-join-launches",  # on proven kernels, once memory and launches are final
         "one-launch"),
    Step("block", "block-join-collectives",  # likewise, before tails are programs of their own
         "one-launch"),
    Step("block", "block-overlap-collectives",  # on the sums that are left to the library
         "one-launch"),
    Step("block", "block-peel-tails",  # last: a kernel in two parts is a part of no other
         "schedule"),
    Step("block", "block-check-accesses"),  # last, and only on demand: on the code that runs
)
