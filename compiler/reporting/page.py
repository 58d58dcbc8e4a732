"""The page: a template, styles, scripts, the plotting library and the facts, in one file.

Names and messages of a model reach the page as data only: as JSON in which `<`, `>`, `&` and `'`
are escaped, and as text of elements, which the template escapes. Scripts write them as text, never
as HTML. The page's own policy forbids every connection.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from compiler.diagnostics import Problem, StrataError
from compiler.reporting.facts import Facts
from compiler.reporting.terminal import lines_of

SCRIPTS = ("core.js", "listings.js", "modules.js", "kernels.js", "memory.js", "fusion.js",
           "compare.js", "passes.js", "start.js")
"""The page's own scripts, in the order in which they run."""
LIBRARY = ("d3.min.js", "plot.umd.min.js")
"""Observable Plot, and D3, which it needs."""


def page(facts: Facts) -> str:
    """The page as HTML. Raises StrataError if Jinja2 is not installed."""
    check_template_engine()
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        loader=jinja2.FunctionLoader(_file))
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment.get_template("page.html").render(
        facts=facts, style=_file("page.css"), text="\n".join(lines_of(facts)),
        scripts=[*(_vendored(name) for name in LIBRARY), *(_file(name) for name in SCRIPTS)])


def check_template_engine() -> None:
    """Raises StrataError if Jinja2 is not installed."""
    from importlib.util import find_spec

    if find_spec("jinja2") is None:
        raise StrataError("a report is made with Jinja2, which is not installed", [Problem(
            "package jinja2 is missing", hint='install it with: pip install '
            '"strata-compiler[report]"; --terminal prints the report without it')])


def _file(name: str) -> str:
    return _text("page", name)


def _vendored(name: str) -> str:
    return _text("vendor", name)


def _text(*path: str) -> str:
    file: Any = resources.files("compiler.reporting").joinpath(*path)
    return file.read_text(encoding="utf-8")
