"""Minimizes a failing model: `python -m compiler reduce MODEL`.

    candidate.py   a model with the inputs on which it fails
    verdict.py     what a model does: it is right, refused, a fault, wrong, a crash, a timeout
    options.py     how candidates are compiled and compared
    reading.py     a model, read to be edited
    recording.py   what every value of a model is
    probe.py       the process in which candidates are compiled and run, for they may crash it
    prober.py      ... and how it is asked, and ended when it takes too long
    ddmin.py       delta debugging (Zeller and Hildebrandt, 2002) over any list
    graphs.py      edits of ONNX graphs: some of the nodes, a node less, a branch instead of an If
    shrink.py      smaller dims, simpler numbers
    reducer.py     tries edits as long as the model fails in the same way
"""
