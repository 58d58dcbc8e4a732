"""The tuner: tries schedules on the machine, and keeps the fastest for later compilations.

| file | what it does |
|---|---|
| `files.py` | which databases a compilation uses |
| `database.py` | winners in SQLite files |
| `tasks.py` | the kernels of a model, each as a small model of its own |
| `search.py` | which schedules of a kernel to try next, and when to stop |
| `laboratory.py` | compiles candidates in several processes, and times them in one |
| `worker.py`, `processes.py` | those processes, and how they are spoken to |
| `tuner.py`, `report.py` | a whole model: in which order, for how long, and what came of it |
| `api.py` | `compiler.tune` |

No target is known here: a target offers `candidates`, a `tuning_key` and a `timer`.
"""
