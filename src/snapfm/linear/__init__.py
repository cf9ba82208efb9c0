"""HOW a batch of symmetric systems on one pattern is solved."""
