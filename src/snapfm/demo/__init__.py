"""The demonstration: one model, one noise, sampled without and with laws, judged, pictured and explained on a page.

The walk: collect (evidence.py) → judge (judge.py) → figures on record (record.py) → pictures (picture.py), tables
(table.py) and the page (page.py); run.py does it all. May import everything below cli; only cli imports it.
"""
