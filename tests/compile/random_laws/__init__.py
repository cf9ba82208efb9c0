"""Laws composed at random: a hypothesis strategy over every family of supported operators.

`chain` holds the law being drawn and the strategy; the other modules fill its table of operators, one family after the
other.
"""

from tests.compile.random_laws import arithmetic, combination, movement
from tests.compile.random_laws.chain import FAMILIES, Chain, laws

__all__ = ["FAMILIES", "Chain", "arithmetic", "combination", "laws", "movement"]
