"""Lower laws to a program: nonlinear operations on single numbers, everything linear multiplied out.

Consumes the graphs of a Structure's plans; gives a `Listing`: blocks of nonlinear operations whose operands are linear
forms over cells, and the residual rows as linear forms. Linear operators without a lowering of their own (transforms,
convolutions, interpolation) are probed for their matrices. What has no scalar form (a sort, a softmax) raises
Unlowerable, and the caller works with torch's derivatives instead: slower, same answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.fx import GraphModule

from snapfm.laws import Params
from snapfm.structure.lowering import Block, Listing, Unlowerable, Walk


def lower(graphs: Sequence[GraphModule], u: Tensor, params: Params) -> Listing:
    """Lower the graphs of all laws into one listing; `u` and `params` are one float64 example sample."""
    listing = Listing(u.numel())
    for place, graph in enumerate(graphs):
        try:
            listing.rows.append(Walk(listing, graph, u, params).run())
        except Unlowerable as cause:
            cause.law = place
            raise
    return listing


__all__ = ["Block", "Listing", "Unlowerable", "lower"]
