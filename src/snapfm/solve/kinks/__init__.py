"""Answers on kinks of a law (max, abs, where), and gradients there."""
