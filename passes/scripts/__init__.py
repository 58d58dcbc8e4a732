"""Scripts of schedules: steps that transform a kernel's schedule, one a line.

    @contract_*                    a kernel by name; `*` stands for any part of it
        tile i0 by 64, 8           two levels, one inside another: i0.0 and i0.1
        parallelize i0.0           one program per tile
        vectorize i1               its tile lies in vector lanes
        unroll i2 by 4
    nests(contraction, map, ...)   or kernels by their nests; `...` stands for any more of them
        pipeline 3

    place.py    a level by its axis and number
    steps.py    the steps: how each is written, and what it makes of a schedule
    replay.py   all steps of a script on a kernel, and which one a fault comes from
    reading.py  the file
    printing.py a schedule as a script
"""
