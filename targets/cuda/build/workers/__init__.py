"""Programs that run Triton in processes of their own, over pipes to the target.

They are started by path and import nothing of Strata, so that a process starts in about the time
that Triton takes to be imported, and the calling program never loads it.
"""
