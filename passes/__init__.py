"""Passes: each a file of its name, in the folder of the level (or of the step) it works on.

`base` says what a pass is and what it is given, `rewriting` is the one way of changing IR, and
`registry` finds passes by their files. Nothing here imports targets or the compiler.
"""
