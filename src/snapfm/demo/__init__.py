"""The demonstration: one model, one noise, sampled without and with laws, judged, pictured and explained on a page.

The walk: sample (collect.py) and judge (metrics) → keep (evidence.py, record.py) → draw (picture.py, plots.py,
canvas.py), tabulate (table.py) and explain (page.py, snippet.py); run.py does it all. May import everything below cli;
only cli imports it.
"""
