"""What `torch.compile` makes of a program, for `compiler.explain` and `compiler.profile`.

    chosen.py     the options that a program of torch.compile was made with
    recorded.py   a call of a program, and its compiled parts
    failures.py   programs that PyTorch does not run or export, as errors of ours
"""
