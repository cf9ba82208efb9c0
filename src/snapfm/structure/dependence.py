"""What is tracked of a tensor while a law's graph is walked: which unknowns each element reads, and how it bends.

`first` holds, per element, the unknowns it depends on. `second` holds, per element, the events it went through: an
event is one nonlinear operation on one element, kept as the two sets of unknowns whose cross derivative it can make
non-zero. Two reserved events carry no curvature: KINK (a branch, a maximum: the slope jumps) and PARAMETRIC (the
slope depends on params). An element without events is affine in the field, with slopes known once and for all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from snapfm.structure.sets import Index, Sets, union

KINK = 0
PARAMETRIC = 1
_RESERVED = 2


@dataclass(frozen=True)
class Dependence:
    """Unknowns (`first`) and events (`second`) of every element of one tensor, flattened."""

    first: Sets
    second: Sets

    @classmethod
    def none(cls, size: int, width: int) -> Dependence:
        """Describe a tensor that does not depend on the field."""
        return cls(Sets.empty(size, width), Sets.empty(size))

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.first.size

    def gather(self, source: Index) -> Dependence:
        """Copy elements; NONE copies nothing."""
        return Dependence(self.first.gather(source), self.second.gather(source))

    def group(self, label: Index, source: Index, size: int) -> Dependence:
        """Sum elements: element e is a linear combination of those with label e."""
        return Dependence(self.first.group(label, source, size), self.second.group(label, source, size))

    def marked(self, event: int) -> Dependence:
        """Put a reserved event on every element that reads the field or went through an event."""
        touched = (self.first.counts > 0) | (self.second.counts > 0)
        return Dependence(self.first, union([self.second, Sets.constant(touched, event)]))

    def scaled(self, left: Sets, right: Sets) -> Dependence:
        """Mark the products in which one factor alone reads the field: the other is its slope, and may come from params.

        Factors that read the field elsewhere may hold params here (a boundary value joined to a field), and which
        elements do is not tracked; PARAMETRIC is right for constants too, only dearer.
        """
        lone = (left.counts > 0) != (right.counts > 0)
        return Dependence(self.first, union([self.second, Sets.constant(lone, PARAMETRIC)]))

    def flattened(self) -> Dependence:
        """Drop the slope, keep the memory that values were read: for comparisons, signs, rounding."""
        kinked = self.marked(KINK)
        return Dependence(Sets.empty(self.size, self.first.width), kinked.second)


def combined(parts: list[Dependence]) -> Dependence:
    """Add element by element, without any cross derivative."""
    return Dependence(union(part.first for part in parts), union(part.second for part in parts))


@dataclass
class Events:
    """The register of nonlinear operations met so far: blocks of pairs of index sets, numbered consecutively."""

    count: int = _RESERVED
    blocks: list[tuple[int, Sets, Sets]] = field(default_factory=list)

    def bend(self, value: Dependence, left: Sets, right: Sets) -> Dependence:
        """Record that element e of `value` may have non-zero cross derivatives between left[e] and right[e]."""
        present = (left.counts > 0) & (right.counts > 0)
        if not present.any():
            return value
        first = self.count
        self.blocks.append((first, left, right))
        self.count += left.size
        return Dependence(value.first, union([value.second, Sets.singletons(present, first)]))

    def curve(self, value: Dependence) -> Dependence:
        """Record that every element of `value` is a general nonlinear function of all it reads."""
        return self.bend(value, value.first, value.first)
