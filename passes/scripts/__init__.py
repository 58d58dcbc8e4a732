"""Scripts of schedules: one step per line, each of which transforms a kernel's schedule.

    @contract_*                    a kernel by its name, in which `*` matches any text
        tile i0 by 64, 8           two levels, one inside the other: i0.0 and i0.1
        parallelize i0.0           one program per tile
        vectorize i1               its tile lies in vector lanes
        unroll i2 by 4
    nests(contraction, map, ...)   or kernels by their nests; `...` matches any further nests
        pipeline 3

    place.py    names of levels: an axis and the level's number
    steps.py    the steps: how each is written, and how it changes a schedule
    fusion.py   the step that fuses two axes of the kernel itself
    replay.py   applies all steps of a script to a kernel, and finds the step that caused a fault
    reading.py  reads the file
    printing.py prints a schedule as a script
"""
