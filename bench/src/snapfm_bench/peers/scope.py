"""What a peer supports: some handle equalities only, and raise before any work is done."""

from __future__ import annotations

from snapfm.compile import CompiledLaws
from snapfm.compile.oracle import OracleLaw
from snapfm.errors import UnsupportedLaw
from snapfm.solve.base import Limits


def equalities_only(peer: str, structure: CompiledLaws, limits: Limits) -> None:
    """Refuse laws with inequalities or bounds."""
    for law in structure.laws:
        if isinstance(law, OracleLaw):
            raise UnsupportedLaw(
                f"{peer} expects laws that torch can differentiate; got Oracle '{law.name}'. Write it in torch, or leave it out."
            )
    others = [f"Inequality '{law.name}'" for law in structure.laws if law.kind != "equality"]
    others += [f"Bounds '{name}'" for name in limits.names]
    if others:
        raise UnsupportedLaw(
            f"{peer} expects laws that are all Equality; got {', '.join(others)}. Use the Ipopt peer, or leave them out."
        )
