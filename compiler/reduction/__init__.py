"""Minimizes a failing model: `python -m compiler reduce MODEL`.

    candidate.py   a model with the inputs on which it fails
    verdict.py     the outcome of a model: right, refused, fault, wrong, crash, timeout
    peer.py        onnxruntime's results, and whether they differ
    options.py     how candidates are compiled and compared
    reading.py     reads a model for editing
    recording.py   records every value of a model
    probe.py       the process in which candidates are compiled and run, for they may crash it
    process.py     ... and how it is asked, and ended when it takes too long
    prober.py      asks it about candidates
    ddmin.py       delta debugging (Zeller and Hildebrandt, 2002) over any list
    graphs.py      edits of ONNX graphs: some of the nodes, a node less, a branch instead of an If
    shrink.py      smaller dims, simpler numbers
    reducer.py     tries edits as long as the model fails in the same way
"""
