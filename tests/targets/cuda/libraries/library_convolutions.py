"""Kernels that are convolutions as cuDNN has them, and some that are not, as text."""

from __future__ import annotations

from collections.abc import Sequence


def convolution(
    x: Sequence[int], w: Sequence[int], element: str = "f16", *, strides: Sequence[int] = (),
    pads: Sequence[int] = (), dilations: Sequence[int] = (), group: int = 1, last: bool = True,
    behind: str = "",
) -> str:
    """A convolution of x, of batch, channels and places; `last`: channels lie last in memory.

    `behind`: lines from `%p` to `%y`, with `%f` and `%c`, a factor and a bias of each channel, and
    `%zt`, of the result's shape.
    """
    places = len(x) - 2
    strides, dilations = strides or [1] * places, dilations or [1] * places
    pads = pads or [0] * 2 * places
    out = [(n + pads[k] + pads[places + k] - (f - 1) * d - 1) // s + 1 for k, (n, f, d, s) in
           enumerate(zip(x[2:], w[2:], dilations, strides, strict=True))]
    y = [x[0], w[0], *out]
    to = back = [*range(places + 2)]
    if last:
        to, back = [0, places + 1, *range(1, places + 1)], [0, *range(2, places + 2), 1]

    def lying(sizes: Sequence[int]) -> str:
        return f"{element}{[sizes[k] for k in back]}"
    attributes = (f"{{strides = {list(strides)}, pads = {list(pads)}, "
                  f"dilations = {list(dilations)}, group = {group}}}")
    lines = [f"%xt = graph.transpose %x {{perm = {to}}} : {element}{list(x)}",
             f"%zt = graph.transpose %z {{perm = {to}}} : {element}{y}",
             f"%p = graph.conv %xt, %w {attributes} : {element}{y}",
             *(f"%{to} = graph.reshape %{of} {{shape = [{w[0]}{', 1' * places}]}} : "
               f"{element}[{w[0]}{', 1' * places}]" for to, of in (("c", "b"), ("f", "a"))),
             *behind.replace("RESULT", f"{element}{y}").split("; ")]
    value = "%y" if "%y" in behind else "%p"
    lines.append(f"%r = graph.transpose {value} {{perm = {back}}} : {lying(y)}")
    return (f"strata.func @main(%x: {lying(x)}, %w: {element}{list(w)}, %a: {element}[{w[0]}], "
            f"%b: {element}[{w[0]}], %z: {lying(y)}) -> ({lying(y)}) "
            'inputs ["x", "w", "a", "b", "z"] outputs ["r"] {\n'
            + "\n".join(line for line in lines if line) + "\nstrata.return %r\n}")


BIAS = "%y = graph.add %p, %c : RESULT"
RELU = "%s = graph.add %p, %c : RESULT; %y = graph.relu %s : RESULT"
ADDED = ("%s = graph.add %p, %c : RESULT; %t = graph.add %s, %zt : RESULT; "
         "%y = graph.relu %t : RESULT")
SCALED = ("%q = graph.mul %p, %f : RESULT; %s = graph.add %q, %c : RESULT; "
          "%t = graph.add %s, %zt : RESULT; %y = graph.relu %t : RESULT")
SAME = (1, 1, 1, 1)
HALF, SMALL = (2, 16, 7, 9), (24, 16, 3, 3)
FORMS = {
    "nhwc.ohwc.nhwo.p1x1": convolution(HALF, SMALL, pads=SAME),
    "nhwc.ohwc.o.nhwo.p1x1.relu": convolution(HALF, SMALL, pads=SAME, behind=RELU),
    "nhwc.ohwc.o.nhwo.nhwo.p1x1.relu": convolution(HALF, SMALL, "f32", pads=SAME, behind=ADDED),
    "nhwc.ohwc.xo.o.nhwo.nhwo.p1x1.relu": convolution(HALF, SMALL, pads=SAME, behind=SCALED),
    "nchw.ochw.o.nohw.nohw.p1x1.relu": convolution(
        HALF, SMALL, pads=SAME, behind=ADDED, last=False),
    "nhwc.ohwc.nhwo.s2x1.p1x0.d1x2": convolution(
        (2, 16, 13, 9), (24, 16, 3, 5), strides=(2, 1), pads=(1, 0, 2, 1), dilations=(1, 2)),
    "nhwc.oc.o.nhwo.s2x2": convolution(HALF, (24, 16, 1, 1), strides=(2, 2), behind=BIAS),
    "ncw.oc.o.now": convolution(HALF, (24, 16, 1, 1), behind=BIAS, last=False),
    "nhwc.ohwc.o.nhwo": convolution((2, 64, 7, 9), (64, 32, 3, 3), group=2, behind=BIAS),
    "nhwc.ghw.o.nhwo.p1x1": convolution(HALF, (16, 1, 3, 3), pads=SAME, group=16, behind=BIAS),
    "nhwc.ghw.nhwo.s2x2": convolution(HALF, (32, 1, 3, 3), strides=(2, 2), group=16),
    "nwc.owc.o.nwo.p1.relu": convolution((2, 16, 13), (24, 16, 3), pads=(1, 1), behind=RELU),
    "ndhwc.odhwc.ndhwo.p1x1x1": convolution(
        (2, 16, 5, 6, 7), (24, 16, 3, 3, 3), pads=(1,) * 6),
    "nc.oc.xo.o.no": """
      strata.func @main(%x: f16[48, 32], %w: f16[24, 32], %a: f32[24], %b: f32[24]) -> (f16[48, 24])
          inputs ["x", "w", "a", "b"] outputs ["y"] {
        %t = graph.transpose %w {perm = [1, 0]} : f16[32, 24]
        %p = graph.matmul %x, %t : f16[48, 24]
        %q = graph.cast %p {to = f32} : f32[48, 24]
        %s = graph.mul %q, %a : f32[48, 24]
        %r = graph.add %s, %b : f32[48, 24]
        %y = graph.cast %r {to = f16} : f16[48, 24]
        strata.return %y
      }""",
}
"""By what a schedule says of them behind the library's name."""
WIDENED = """
  strata.func @main(%x: f16[2, 16, 13, 9], %w: f16[24, 16, 3, 3]) -> (f64[2, 24, 11, 7])
      inputs ["x", "w"] outputs ["y"] {
    %p = graph.conv %x, %w {strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], group = 1} :
        f16[2, 24, 11, 7]
    %y = graph.cast %p {to = f64} : f64[2, 24, 11, 7]
    strata.return %y
  }"""
OTHERS = {
    "few channels, which become whole words": convolution((2, 3, 13, 9), (24, 3, 3, 3)),
    "f64": convolution(HALF, SMALL, "f64", pads=SAME), "widened": WIDENED,
    "one place": convolution((1, 16, 7, 9), (24, 16, 7, 9)),
    "added behind the relu": convolution(
        HALF, SMALL, behind="%s = graph.relu %p : RESULT; %y = graph.add %s, %zt : RESULT"),
    "another function": convolution(HALF, SMALL, behind="%y = graph.tanh %p : RESULT"),
    "the factor of what is added": convolution(
        HALF, SMALL, behind="%s = graph.add %p, %zt : RESULT; %y = graph.mul %s, %f : RESULT"),
    "added twice": convolution(HALF, SMALL, behind="%y = graph.add %p, %p : RESULT"),
}
