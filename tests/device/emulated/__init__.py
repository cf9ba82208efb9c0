"""A device that is not there: executes the shipped PTX on the CPU, thread by thread, to verify it. Needs a C compiler."""
