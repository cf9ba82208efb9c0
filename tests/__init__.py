"""Tests. A package: some distributions install one of this name, and benchmarks import cases from here."""
