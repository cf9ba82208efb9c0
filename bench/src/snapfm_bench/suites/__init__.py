"""Evidence: measurements of the rest of the package, and the pages that show them.

Four studies share one kit. `projection` times projection methods (`snapfm bench`, `snapfm report`), `quality` scores samplers,
`demo` is the demonstration page, `audit` finds which laws simulated fields obey. The kit: suite (what to run, from TOML) → record
(records.jsonl, and the resumable run of cell after cell) → supervise (a child process per cell, where needed) → judge (float64,
from the laws alone) → page and text (HTML, Markdown, pictures, terminal). May import everything below cli.
"""
