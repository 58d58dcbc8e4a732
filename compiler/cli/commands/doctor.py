"""Report what this machine can run: versions, targets and their devices, frontends.

Missing packages are listed with the command that installs them.
"""

from __future__ import annotations

import argparse

from compiler.cli import arguments as shared
from compiler.io.printing import show, show_text

SUMMARY = "report what this machine can run, and what to install"
TOPIC = "About Strata"
OPTIONAL = {
    "llvmlite": ("the cpu target", "pip install strata-compiler"),
    "triton": ("the cuda target", 'pip install "strata-compiler[cuda]"'),
    "torch": ("PyTorch models, tensors on a GPU", 'pip install "strata-compiler[torch]"'),
    "jinja2": ("the page of `report`", 'pip install "strata-compiler[report]"'),
    "onnxruntime": ("bench --against onnxruntime", 'pip install "strata-compiler[bench]"'),
}
"""For each package, what needs it and how to install it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    shared.add_plugins(parser)


def run(arguments: argparse.Namespace) -> int:
    from compiler.faults import package_version, versions
    from compiler.frontend import frontends
    from compiler.plugins.plugin_files import load_plugins
    from compiler.programs.cache_state import cache_state

    plugins = load_plugins(arguments.plugin)
    show(*versions())
    for name in plugins.target_names():
        target = plugins.find_target(name)
        show(f"target {name}: {target.description}")
        for line in target.report():
            show(f"  {line}")
    for name, frontend in frontends().items():
        show(f"frontend {name}: {frontend.DESCRIPTION}")
    show_text(cache_state())
    for package, (use, command) in OPTIONAL.items():
        if package_version(package) is None:
            show(f"missing {package}, for {use}: {command}")
    return 0
