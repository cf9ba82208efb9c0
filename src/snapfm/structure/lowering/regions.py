"""Linear regions: chains of operators that are linear in what they read are kept as maps and probed for their matrix.

An operator joins when it is linear in the field with slopes that never change. A transform, a multiplication by known wave
numbers and the transform back are then one map, whose inner complex tensors are never written out. A map begins at tensors
that are written out already: forms, pairs, and values of params.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.fx import Node

from snapfm.arrays import Index
from snapfm.errors import LawError
from snapfm.structure.lowering.tape import Form, Unlowerable, added, stacked
from snapfm.structure.pattern import Pattern
from snapfm.structure.probe import NotLinear, probe
from snapfm.structure.rules import Call, Operand, linear, rule_for
from snapfm.structure.sets import Sets

if TYPE_CHECKING:
    from snapfm.structure.lowering.walk import Walk

# Entries of one map's matrix. 20 million take a quarter of a gigabyte and some seconds to probe: a transform of whole
# 64 × 64 planes fits; larger ones are left to torch, which transforms faster than any written-out matrix.
ENTRY_LIMIT = 20_000_000


class Regions:
    """The maps of one walk; `node in regions` says that a tensor is given by one."""

    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self._tracked: dict[Node, Any] = {}  # Operand, or a tuple of them, over the numbers of the beginnings
        self._begins: dict[Node, int] = {}  # first number of each beginning
        self._width = 0

    def __contains__(self, node: Node) -> bool:
        return node in self._tracked

    def take(self, node: Node) -> bool:
        """Make a node part of the maps if it is linear in what it reads, with slopes that never change."""
        target: Any = node.target
        args: Any
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), self._operand)
        if target is operator.getitem:
            if node.args[0] not in self._tracked:
                return False
            self._tracked[node] = args[0][args[1]]
            return True
        rule = rule_for(target)
        if rule is None:
            return False
        value = self.walk.value[node]
        call = Call(target, tuple(args), dict(kwargs), value, self._width)
        if not linear(call):
            return False
        try:
            found = rule(call)
        except LawError:
            return False
        parts = found if isinstance(found, tuple) else (found,)
        values = value if isinstance(value, (tuple, list)) else (value,)
        if any(part is None for part in parts) or not all(isinstance(v, Tensor) for v in values):
            return False
        tracked = tuple(Operand(one, part, False) for one, part in zip(values, parts))
        self._tracked[node] = tracked if isinstance(value, (tuple, list)) else tracked[0]
        return True

    def written_out(self, node: Node) -> Form:
        """Give the tensor of a map as a form over cells; a complex one in parts, along a last axis of two."""
        walk, inside = self.walk, self._inside(node)
        begins = [one for one in self._begins if any(one in member.all_input_nodes for member in inside)]
        forms = [walk.pair(one) if walk.value[one].is_complex() else walk.operand(one) for one in begins]
        pattern = self._pattern(node, begins, [form.size for form in forms])
        if pattern.nnz > ENTRY_LIMIT:
            raise Unlowerable(
                f"{_names(inside)}, whose matrix of {pattern.nnz:,} entries is too dense to write out "
                f"(limit {ENTRY_LIMIT:,})"
            )
        splits = [walk.value[one].is_complex() for one in begins]

        def function(flat: Tensor) -> Tensor:
            known = dict(walk.value)
            start = 0
            for one, form, split in zip(begins, forms, splits):
                part = (
                    flat[start : start + form.size].reshape(form.shape).clone()
                )  # views of complex numbers need their own start
                known[one] = torch.view_as_complex(part) if split else part
                start += form.size
            for member in inside:
                target: Any = member.target
                args, kwargs = torch.fx.node.map_arg((member.args, member.kwargs), known.__getitem__)
                known[member] = target(*args, **kwargs)
            result: Tensor = known[node]
            return (torch.view_as_real(result) if result.is_complex() else result).reshape(-1)

        try:
            matrix, offset = probe(function, pattern)
        except NotLinear as cause:
            raise Unlowerable(f"{_names(inside)} ({cause})") from cause
        whole = stacked(forms, walk.tape.cells)
        shape = tuple(walk.value[node].shape)
        shape = (*shape, 2) if walk.value[node].is_complex() else shape
        linear = Form(csr_array(matrix @ whole.matrix), shape)
        return added(linear, walk.tape.constant(torch.from_numpy(offset).reshape(shape)), walk.tape.cells)

    def _operand(self, node: Node) -> Any:
        """See a node as rules do; one that is written out begins maps, under numbers of its own."""
        if node in self._tracked:
            return self._tracked[node]
        value = self.walk.value[node]
        floating = isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())
        if self.walk.is_known(node) or not floating:
            return Operand(value, None, self.walk.known[node])
        if node not in self._begins:
            self._begins[node] = self._width
            self._width += _numbers(value)
        first, each = self._begins[node], 2 if value.is_complex() else 1
        count = value.numel()
        sets = Sets(each * np.arange(count + 1), first + np.arange(each * count), first + each * count)
        return Operand(value, sets, False)

    def _inside(self, node: Node) -> list[Node]:
        """List the operators between the beginnings and a node, in the order of the graph."""
        needed = {node}
        found = []
        for earlier in reversed(list(self.walk.graph.graph.nodes)):
            if earlier in needed and earlier in self._tracked:
                found.append(earlier)
                needed.update(earlier.all_input_nodes)
        return found[::-1]

    def _pattern(self, node: Node, begins: list[Node], sizes: list[int]) -> Pattern:
        """Give where the matrix can be non-zero, over the beginnings one after the other."""
        reads: Sets = self._tracked[node].reads
        if self.walk.value[node].is_complex():
            reads = reads.gather(np.repeat(np.arange(reads.size), 2))
        place = np.zeros(self._width, np.int64)
        start = 0
        for one, size in zip(begins, sizes):
            first = self._begins[one]
            place[first : first + size] = start + np.arange(size)
            start += size
        columns: Index = place[reads.indices]
        if len(begins) > 1:
            columns = columns[np.lexsort((columns, reads.rows()))]
        return Pattern(reads.size, start, reads.indptr, columns)


def _numbers(value: Tensor) -> int:
    return value.numel() * (2 if value.is_complex() else 1)


def _names(inside: list[Node]) -> str:
    names = [str(getattr(node.target, "overloadpacket", node.target)).removeprefix("aten.") for node in inside]
    return " → ".join(dict.fromkeys(names))
