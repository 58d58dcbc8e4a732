"""Writes docs/vocabulary.md from the tables of `compiler/torch/vocabulary`.

    python -m docs.vocabulary
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from compiler.torch.vocabulary.families import FAMILIES
from compiler.torch.vocabulary.options import MODES, OPTIONS
from compiler.torch.vocabulary.switches import ARTIFACTS, DYNAMO, VARIABLES, Families

PAGE = Path(__file__).with_name("vocabulary.md")
HEAD = """\
# PyTorch's vocabulary

What the modes, options, switches and debug variables of `torch.compile` mean with
`backend="strata"`: one of ours, without effect, or refused. In names, `*` stands for any text; the
first line that has a name counts. Options of `compiler.compile` (`strategy`, `precision`,
`threads`, `dump_dir` ...) may be given in `options`, too. This page is written by
`python -m docs.vocabulary`.
"""
NAMED = {
    "default": "the default",
    "reduce-overhead": "the same: on a GPU, a program is one CUDA graph anyway",
    "max-autotune": "kernels are tuned by measuring before the first call; later compilations find "
                    "the schedules",
}
FAMILIES_HEAD = """
The other options of PyTorch's compiler, by their names. Their use is named in a message of level
INFO. A name that PyTorch's compiler does not have either is an error.
"""
SWITCHES_HEAD = """
## Switches

Switches of `torch._inductor.config`, and the variables `TORCHINDUCTOR_...` that set them, count as
the options of the same names do, which override them. Where an option would be refused, a switch
is named in a warning, since it may be meant for other programs. `triton.cudagraphs` is an option
only, because the switch is off by default.

`dynamic`, `fullgraph` and `torch._dynamo.mark_dynamic` hold as for any backend, and
`transformers.CompileConfig(backend="strata")` passes its fields to `torch.compile`. Without
`torch._dynamo.config.allow_rnn`, PyTorch runs `nn.LSTM`, `nn.GRU` and `nn.RNN` outside of what any
backend compiles. `torch.use_deterministic_algorithms` fixes the order in which sums of scatters are
added.
"""


def page() -> str:
    modes = {**NAMED, **{name: f"`{ours}` without the group of passes `{group}`"
                         for name, (ours, group) in MODES.items()}}
    options = [f"| `{name}` | {meaning.kind} | {meaning.note} |"
               for name, meaning in sorted(OPTIONS.items())]
    families = [f"| {_names(patterns)} | {meaning.kind} | {meaning.note} |"
                for patterns, meaning in FAMILIES]
    head = ["| option | | here |", "|---|---|---|"]
    return "\n".join([
        HEAD, "## Modes", "", *_table("mode", modes), "", "## Options", "", *head, *options,
        FAMILIES_HEAD, *head, *families, SWITCHES_HEAD,
        *_families("switch of `torch._dynamo.config`", DYNAMO), "", "## Debug variables", "",
        *_families("`TORCH_LOGS`", ARTIFACTS), "", *_families("variable", VARIABLES), ""])


def _table(head: str, rows: Mapping[str, str]) -> list[str]:
    return [f"| {head} | here |", "|---|---|", *(f"| `{k}` | {v} |" for k, v in rows.items())]


def _families(head: str, families: Families) -> list[str]:
    return [f"| {head} | here |", "|---|---|",
            *(f"| {_names(patterns)} | {meaning} |" for patterns, meaning in families)]


def _names(patterns: str) -> str:
    return ", ".join(f"`{name}`" for name in patterns.split())


if __name__ == "__main__":
    PAGE.write_text(page())
