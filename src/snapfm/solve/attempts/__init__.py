"""What is tried on samples that Newton's method leaves unsolved, in the order of order.py."""
