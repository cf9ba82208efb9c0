"""The report: one HTML page and one Markdown page from the records of one or several benchmark runs.

The walk: book.py (folders to cases) → one file per section (summary, runtime, projection, errors, nearest, scaling, split,
curves, fields, methods, missing), which compare with compare.py and give the blocks of document.py → page.py and text.py (HTML,
Markdown) → write.py (files). Reads records, kept fields and published.py; runs nothing, and knows no time of day.
"""

from snapfm.bench.report.write import write

__all__ = ["write"]
