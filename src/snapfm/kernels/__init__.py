"""Compiled cores: numpy in, numpy out, no torch, nothing allocated in a hot loop."""
