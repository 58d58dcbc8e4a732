"""Programs that run Triton in separate processes, connected to the target by pipes.

They are started by path and import nothing of Strata. A process therefore starts in about the time
that importing Triton takes, and the calling program never loads Triton.
"""
