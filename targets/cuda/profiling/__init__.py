"""How long the launches of a model take on a GPU, one after another.

    timed_graph.py    a straight program as a graph with an event behind each step
    timed_calls.py    a program with control flow, whose launches record events on its stream
    profile.py        which of the two, and the plain program beside it
    code_facts.py     registers, spills and shared memory of loaded kernels

In the plain program kernels overlap: they start early, and independent ones run side by side. Times
of single kernels would then not add up, so here each starts when the one before it has ended.
"""
