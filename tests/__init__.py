"""Tests. A package: some distributions install one of this name, and benchmarks import the emulated device from here."""
