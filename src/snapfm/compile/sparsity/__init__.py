"""Where derivatives can be non-zero, and colored passes for laws that only torch evaluates."""
