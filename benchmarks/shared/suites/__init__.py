"""What the suites of all targets share: what a row is measured by, and where results gather.

    figures.py   a row's figures, and the goal that its ratio has
    results.py   records in a JSON file, and what tables of them have in common
    contests.py  whole models, each in a process of its own, which is measured when others rest
"""
