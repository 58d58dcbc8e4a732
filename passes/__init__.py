"""Passes: one file per pass, in the folder of the level or of the conversion that it belongs to.

`base` defines what a pass is and what it receives, `rewriting` is the one way to change IR, and
`registry` finds passes by their files. Nothing here imports targets or the compiler.
"""
