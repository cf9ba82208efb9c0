"""A law recorded once as a graph of torch operators, replayed on another field to prove it."""
