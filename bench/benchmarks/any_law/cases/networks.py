"""Networks of power, gas and water: flows on lines, balances at nodes, limits of lines and of what nodes may have.

A network is drawn in the plane: a tree of near neighbors, and the shortest lines that are left.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.any_law.case import Setting, case
from benchmarks.any_law.draws import randn
from snapfm.laws import Bounds, Equality, Inequality, Params

_MESHED, _SPARSE = 1.6, 1.3  # lines per node: 188 of 118 buses, 78 of 60 junctions
_SWEEPS = 60  # of the fixed point of a feeder beside those for its depth
_ROOM = 1.02, 0.02  # a line's limit: what it carries times the first, plus the second


@dataclass(frozen=True)
class Network:
    """Where lines begin and end, and how long they are."""

    nodes: int
    begin: Tensor
    end: Tensor
    length: Tensor

    def into(self, forth: Tensor, back: Tensor | None = None) -> Tensor:
        """Sum at every node what lines bring to their ends, minus what they take at their beginnings: (…, m) to (…, n)."""
        none = forth.new_zeros(*forth.shape[:-1], self.nodes)
        back = forth if back is None else back
        return none.index_add(-1, self.end, forth) - none.index_add(-1, self.begin, back)

    def along(self, at: Tensor) -> Tensor:
        """Take the difference between both ends of every line: (…, n) to (…, m)."""
        return at[..., self.begin] - at[..., self.end]


def _network(nodes: int, lines: float, seed: int) -> Network:
    generator = torch.Generator().manual_seed(seed)
    place = torch.rand(nodes, 2, generator=generator, dtype=torch.float64)
    apart = torch.cdist(place, place)
    chosen = [(int(apart[i, :i].argmin()), i) for i in range(1, nodes)]
    row, column = torch.triu_indices(nodes, nodes, 1)
    known = set(chosen)
    for k in apart[row, column].argsort().tolist():
        if len(chosen) >= int(lines * nodes):
            break
        if (pair := (int(row[k]), int(column[k]))) not in known:
            chosen.append(pair)
    begin, end = torch.tensor(chosen).T
    return Network(nodes, begin, end, apart[begin, end] * nodes**0.5)


def _angles(net: Network, samples: int, generator: torch.Generator) -> Tensor:
    """Draw angles whose flows balance random injections, as a grid without losses has them; the first is zero."""
    weight = 1.0 / net.length
    incidence = torch.eye(net.nodes, dtype=torch.float64)
    laplacian = net.into(weight * net.along(incidence)).neg()
    power = randn(samples, net.nodes, generator=generator)
    power = power - power.mean(1, keepdim=True)
    angle = torch.linalg.solve(laplacian + 1.0 / net.nodes, power.T).T
    angle = angle - angle[:, :1]
    return 0.2 * angle / angle.abs().amax(1, keepdim=True)


def _limits(*pairs: tuple[float, float]) -> Bounds:
    """Lower and upper limits, a pair per channel."""
    low, high = torch.tensor(pairs, dtype=torch.float64).T
    return Bounds(lower=low[:, None], upper=high[:, None])


_FREE = (-torch.inf, torch.inf)


@case(118, tiny=6, group="issue", small=0.01, far=0.1, channels=True)
def power_grid(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Voltage, angle, active and reactive power of every bus; thermal limits of all lines, voltages within six per cent."""
    net = _network(size, _MESHED, 11)
    reactance = 0.05 + 0.1 * net.length
    series = 1.0 / torch.complex(0.2 * reactance, reactance)
    g, b, charging = series.real, series.imag, 0.02 * net.length

    def flows(voltage: Tensor, angle: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Active and reactive power that enters every line at its beginning, then at its end."""
        between = net.along(angle)
        cos, sin = torch.cos(between), torch.sin(between)
        one, two = voltage[..., net.begin], voltage[..., net.end]
        both = one * two
        active, reactive = g * cos + b * sin, g * sin - b * cos
        mirrored = g * cos - b * sin, -g * sin - b * cos
        own = b + charging
        return (
            g * one.square() - both * active, -own * one.square() - both * reactive,
            g * two.square() - both * mirrored[0], -own * two.square() - both * mirrored[1],
        )  # fmt: skip

    def injected(voltage: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
        p, q, p_end, q_end = flows(voltage, angle)
        return net.into(-p_end, p).neg(), net.into(-q_end, q).neg()

    def apparent(voltage: Tensor, angle: Tensor) -> Tensor:
        p, q, p_end, q_end = flows(voltage, angle)
        return torch.stack([p.square() + q.square(), p_end.square() + q_end.square()], dim=-2)

    voltage = 1.0 + 0.02 * randn(samples, size, generator=generator).clamp(-2.5, 2.5)
    angle = _angles(net, samples, generator)
    truth = torch.stack([voltage, angle, *injected(voltage, angle)], dim=1)
    rating = _ROOM[0] * apparent(voltage, angle).amax(-2).sqrt() + _ROOM[1]
    laws = (
        Equality("active", lambda u, p: u[2] - injected(u[0], u[1])[0]),
        Equality("reactive", lambda u, p: u[3] - injected(u[0], u[1])[1]),
        Equality("reference", lambda u, p: u[1, 0]),
        Inequality("thermal", lambda u, p: apparent(u[0], u[1]) - p["rating"].square()),
        _limits((0.94, 1.06), _FREE, _FREE, _FREE),
    )
    return Setting(laws, truth, {"rating": rating})


@case(118, tiny=6)
def dispatch(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Angles, generation and flows without losses: limits of lines and of generators, and a limit of the quadratic cost."""
    net = _network(size, _MESHED, 12)
    angle = _angles(net, samples, generator)
    flow = net.along(angle) / net.length
    load = 0.1 * torch.rand(samples, size, generator=generator, dtype=torch.float64)
    made = load - net.into(flow)
    truth = torch.cat([angle, made, flow], dim=1)
    price = 0.5 + torch.rand(size, generator=torch.Generator().manual_seed(13), dtype=torch.float64)
    most = _ROOM[0] * flow.abs() + _ROOM[1]

    def cost(made: Tensor) -> Tensor:
        return (price * made.square()).sum(-1)

    def limit(u: Tensor, p: Params) -> Tensor:
        return u[2 * size :].abs() - p["most"]

    laws = (
        Equality("flow", lambda u, p: u[2 * size :] - net.along(u[:size]) / net.length),
        Equality("balance", lambda u, p: u[size : 2 * size] + net.into(u[2 * size :]) - p["load"]),
        Equality("reference", lambda u, p: u[0]),
        Inequality("line", limit),
        Inequality("cost", lambda u, p: cost(u[size : 2 * size]) - p["budget"]),
    )
    return Setting(laws, truth, {"load": load, "most": most, "budget": cost(made)})


@case(80, tiny=6, small=0.02, far=0.2, channels=True)
def feeder(samples: int, generator: torch.Generator, size: int) -> Setting:
    """A radial feeder: active and reactive flow, squared current and voltage, and loads; branch i ends in node i."""
    seed = torch.Generator().manual_seed(14)
    parent = torch.tensor([0, *(int(torch.randint(max(0, i - 3), i, (), generator=seed)) for i in range(1, size))])
    children = torch.zeros(size, size, dtype=torch.float64)
    children[parent[1:], torch.arange(1, size)] = 1.0
    r = 0.15 / size * (0.5 + torch.rand(size, generator=seed, dtype=torch.float64))
    x = 0.6 * r

    def before(v: Tensor) -> Tensor:
        return torch.cat([torch.ones_like(v[..., :1]), v[..., parent[1:]]], dim=-1)

    def rows(u: Tensor) -> tuple[Tensor, ...]:
        p, q, current, v, load, reactive = u.unbind(-2)
        return (
            p - r * current - load - p @ children.T,
            q - x * current - reactive - q @ children.T,
            before(v) - 2.0 * (r * p + x * q) + (r.square() + x.square()) * current - v,
            current * before(v) - p.square() - q.square(),
        )

    load = 2.0 / size * torch.rand(samples, size, generator=generator, dtype=torch.float64)
    v, current, active, reactive = torch.ones_like(load), 0.0 * load, load, 0.3 * load
    for _ in range(
        _SWEEPS + 2 * size
    ):  # a load reaches the root after as many sweeps as the tree is deep, in two passes
        active, reactive = (own + drop * current + flow @ children.T
                            for own, drop, flow in ((load, r, active), (0.3 * load, x, reactive)))  # fmt: skip
        current = (active.square() + reactive.square()) / before(v)
        v = before(v) - 2.0 * (r * active + x * reactive) + (r.square() + x.square()) * current
    truth = torch.stack([active, reactive, current, v, load, 0.3 * load], dim=1)
    names = ("active", "reactive", "voltage", "current")
    laws = (
        *(Equality(name, lambda u, p, k=k: rows(u)[k]) for k, name in enumerate(names)),
        _limits(_FREE, _FREE, (0.0, torch.inf), (0.81, 1.21), (0.0, torch.inf), _FREE),
    )
    return Setting(laws, truth, {})


@case(60, tiny=6, group="issue", small=0.02, far=0.3)
def gas_network(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Pressures, supplies and flows: squared pressures fall by f|f|, flows balance, pressures stay within limits."""
    net = _network(size, _SPARSE, 15)
    slope = 0.05 + 0.1 * net.length
    pressure = (1.0 + 0.15 * randn(samples, size, generator=generator)).clamp(0.7, 1.3)
    drop = net.along(pressure.square()) / slope
    flow = drop.sign() * drop.abs().sqrt()
    truth = torch.cat([pressure, -net.into(flow), flow], dim=1)

    def weymouth(u: Tensor, p: Params) -> Tensor:
        flow = u[2 * size :]
        return net.along(u[:size].square()) - slope * flow * flow.abs()

    least, most = torch.full((2, truth.shape[1]), torch.inf, dtype=torch.float64) * torch.tensor([[-1.0], [1.0]])
    least[:size], most[:size] = 0.7, 1.3
    laws = (
        Equality("weymouth", weymouth),
        Equality("balance", lambda u, p: u[size : 2 * size] + net.into(u[2 * size :])),
        Bounds(lower=least, upper=most),
    )
    return Setting(laws, truth, {})


@case(60, tiny=8, small=0.02, far=0.3)
def water_network(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Heads, demands and flows of water pipes: friction after Hazen and Williams, demands of four zones, least heads."""
    net = _network(size, _SPARSE, 16)
    slope, zones = 0.2 + net.length, size // 4

    def friction(flow: Tensor) -> Tensor:
        return slope * flow * (flow.square() + 1e-4) ** 0.426

    def zone(demand: Tensor) -> Tensor:
        return demand[..., : 4 * zones].reshape(*demand.shape[:-1], 4, zones).sum(-1)

    head = 2.0 + 0.3 * randn(samples, size, generator=generator)
    drop, flow = net.along(head), torch.zeros(samples, len(net.begin), dtype=torch.float64)
    for _ in range(100):  # Newton's method; friction grows with the flow and is convex beyond zero
        slopes = slope * (flow.square() + 1e-4) ** 0.426 * (1.0 + 0.852 * flow.square() / (flow.square() + 1e-4))
        flow = flow - (friction(flow) - drop) / slopes
    demand = net.into(flow)
    least = head - 0.05 * torch.rand(samples, size, generator=generator, dtype=torch.float64)
    laws = (
        Equality("friction", lambda u, p: net.along(u[:size]) - friction(u[2 * size :])),
        Equality("balance", lambda u, p: net.into(u[2 * size :]) - u[size : 2 * size]),
        Equality("zone", lambda u, p: zone(u[size : 2 * size]) - p["zone"]),
        Inequality("head", lambda u, p: p["least"] - u[:size]),
    )
    return Setting(laws, torch.cat([head, demand, flow], dim=1), {"zone": zone(demand), "least": least})
