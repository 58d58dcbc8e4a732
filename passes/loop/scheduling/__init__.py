"""Passes that give kernels their schedules; the file `schedule.py` has `loop-schedule`."""
