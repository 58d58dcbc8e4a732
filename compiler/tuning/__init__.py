"""The tuner: measures schedules on this machine, and stores the fastest for later compilations.

| file | what it does |
|---|---|
| `files.py` | which databases a compilation uses |
| `database.py` | the best schedules in SQLite files |
| `options.py` | the options of a run |
| `subject.py`, `tasks.py` | a model and its kernels, each as a small model |
| `work.py` | which kernels are worth tuning, and in which order |
| `search.py` | which schedules of a kernel to try next, and when to stop |
| `laboratory.py` | compiles candidates in several processes, and times them in others |
| `worker.py`, `bench.py` | what those processes do: compile, and time against the rules |
| `jobs.py`, `processes.py` | the messages to these processes, and communication |
| `tuner.py`, `report.py` | tuning of models: order, time limits, and the report |
| `whole.py` | a whole model, timed without and with the new schedules |
| `api.py` | `compiler.tune` |

The tuner is independent of targets: a target provides candidates (`Scheduling`), a key
(`Tuning`) and a timer (`Running`).
"""
