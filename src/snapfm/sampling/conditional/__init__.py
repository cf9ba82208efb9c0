"""Draws from a model's own distribution given the laws."""
