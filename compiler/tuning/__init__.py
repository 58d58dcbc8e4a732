"""The tuner: tries schedules on the machine, and keeps the fastest for later compilations.

| file | what it does |
|---|---|
| `files.py` | which databases a compilation uses |
| `database.py` | winners in SQLite files |
| `options.py` | what a run is asked for |
| `subject.py`, `tasks.py` | a model, and its kernels, each as a small model of its own |
| `work.py` | which kernels are worth it, and which comes next |
| `search.py` | which schedules of a kernel to try next, and when to stop |
| `laboratory.py` | compiles candidates in several processes, and times them in others |
| `worker.py`, `bench.py` | what those processes do: compile, and time against the rules |
| `jobs.py`, `processes.py` | what they are told, and how they are spoken to |
| `tuner.py`, `report.py` | some models: in which order, for how long, and what came of it |
| `whole.py` | a whole model, timed without and with what was found |
| `api.py` | `compiler.tune` |

No target is known here: a target offers `candidates`, a `tuning_key` and a `timer`.
"""
