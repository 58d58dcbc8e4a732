"""The command that repeats what a compilation did last, for reproducers."""

from __future__ import annotations

from compiler.options import CompileOptions
from compiler.pipeline.strategies import WHOLE_GRAPH


def command_again(options: CompileOptions, command: str, *more: str) -> str:
    """The command that reproduces a fault on `before.mlir`, with the options of the compilation."""
    from compiler.cli.arguments import shell_command

    words = [command, "before.mlir", "--target", options.target]
    for plugin in options.plugins:
        words += ["--plugin", str(plugin.resolve())]
    if options.features is not None:
        words += ["--features", options.features]
    if options.triple is not None:
        words += ["--triple", options.triple]
    if options.strategy != WHOLE_GRAPH:
        words += ["--strategy", options.strategy]
    for name, groups in (("--with", options.with_groups), ("--without", options.without_groups)):
        words += [name, ",".join(groups)] if groups else []
    if options.precision != "f32":
        words += ["--precision", options.precision]
    if options.mesh:
        words += ["--mesh", options.mesh]
    if options.exact:
        words.append("--exact")
    if options.denormals != "flush":
        words += ["--denormals", options.denormals]
    if options.check is not None:
        words.append("--check" if options.check else "--no-check")
    return shell_command([*words, *more])
