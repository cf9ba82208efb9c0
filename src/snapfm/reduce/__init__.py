"""Compiled laws to reduced systems: substitution, blocks, rotation, aggregation, splitting."""
