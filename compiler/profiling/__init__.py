"""`profile`: how long each kernel of a running program takes, and how far from the limit it is.

    measure.py    runs the program with a driver that times launches, beside the plain one
    roofline.py   what this machine reaches: FLOPs and bytes per second, measured
    result.py     the figures, as JSON, as text and as a trace
"""
