"""The kernels of snapfm.kernels compiled for CUDA: what compiles them, and the PTX."""
