"""A reduced problem at run time: substitution, closed forms, marches, Newton's method and its fallbacks."""
