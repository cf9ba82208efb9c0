"""The demonstration: one model and one noise, sampled without and with laws, judged, drawn and explained on a page.

collect (sample and judge) → record (the figures) and arrays → pictures and page; run does it all.
"""
