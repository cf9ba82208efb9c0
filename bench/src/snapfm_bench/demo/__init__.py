"""The demonstration: one model and one noise, sampled without and with laws, judged, drawn and explained on a page.

record (sample, judge, keep the figures) → pictures and page; run does all of it.
"""
