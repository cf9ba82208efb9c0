"""What stands in for modules of snapfm.kernels when they are compiled for CUDA: one sample a tile, a team a sample.

Each file is named after the module it replaces and defines the names that kernels import from it. Needs numba-cuda.
"""
