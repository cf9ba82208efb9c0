"""Micro benchmarks: each case is a module with `run() -> dict`; figures are ratios within one run where possible."""
