"""Evidence: everything that measures the rest of the package and shows what was measured.

Four studies share one kit. `projection` times projection methods (`snapfm bench`, `snapfm report`), `quality` scores samplers,
`demo` is the demonstration page, `audit` says which laws simulated fields obey. The kit: suite (what to run, from TOML) → run
(cell after cell, resumable) → supervise (a child process per cell, where needed) → judge (float64, from the laws alone) →
record (records.jsonl) → page and text (HTML, Markdown, pictures, terminal). May import everything below cli.
"""
