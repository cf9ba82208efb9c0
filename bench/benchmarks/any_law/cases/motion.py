"""Motion: vehicles among obstacles, arms, pendulums, discs that may touch, and chains of atoms."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.any_law.case import Setting, case
from benchmarks.any_law.draws import randn, smooth
from snapfm.laws import Bounds, Equality, Inequality

_OBSTACLES = 4
_STEP = 0.1  # seconds


def _beside(path: Tensor, heading: Tensor) -> tuple[Tensor, Tensor]:
    """Place discs on both sides of a path (b, 2, steps), a little smaller than would touch it: centers and radii."""
    at = torch.linspace(0.2, 0.8, _OBSTACLES).mul(path.shape[-1] - 1).long()
    side = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(_OBSTACLES)[:_OBSTACLES]
    normal = torch.stack([-torch.sin(heading), torch.cos(heading)], dim=1)[..., at]
    center = (path[..., at] + 0.4 * side * normal).transpose(1, 2)
    near = (path.transpose(1, 2)[:, None] - center[:, :, None]).norm(dim=-1).amin(-1)
    return center, 0.98 * near


def _inside(place: Tensor, center: Tensor, radius: Tensor) -> Tensor:
    """How far points (2, steps) are inside discs, as a difference of squares: one row per disc and point."""
    apart = (place.T[None] - center[:, None]).square().sum(-1)
    return radius.square()[:, None] - apart


def _integral(start: Tensor, rate: Tensor) -> Tensor:
    """Sum a rate (b, steps) by Euler's rule; the last rate is not used."""
    return torch.cat([start, start + _STEP * torch.cumsum(rate[:, :-1], dim=1)], dim=1)


def _steps(value: Tensor, rate: Tensor) -> Tensor:
    return value[..., 1:] - value[..., :-1] - _STEP * rate[..., :-1]


@case(50, tiny=8, group="issue", small=0.02, far=0.2, channels=True)
def unicycle(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Place, heading, speed and turning rate among four discs; start and goal given, speed and turning limited."""
    speed = 1.0 + 0.2 * smooth(samples, (size,), generator).clamp(-2, 2)
    turn = 0.8 * smooth(samples, (size,), generator).clamp(-2, 2)
    none = torch.zeros(samples, 1, dtype=torch.float64)
    heading = _integral(none, turn)
    path = torch.stack([_integral(none, speed * f(heading)) for f in (torch.cos, torch.sin)], dim=1)
    truth = torch.cat([path, torch.stack([heading, speed, turn], dim=1)], dim=1)
    center, radius = _beside(path, heading)
    free = torch.full((3, 1), torch.inf, dtype=torch.float64)
    most = torch.tensor([[1.5], [1.7]], dtype=torch.float64)
    laws = (
        Equality("x", lambda u, p: _steps(u[0], u[3] * torch.cos(u[2]))),
        Equality("y", lambda u, p: _steps(u[1], u[3] * torch.sin(u[2]))),
        Equality("heading", lambda u, p: _steps(u[2], u[4])),
        Equality("start", lambda u, p: u[:3, 0]),
        Equality("goal", lambda u, p: u[:2, -1] - p["goal"]),
        Inequality("discs", lambda u, p: _inside(u[:2], p["center"], p["radius"])),
        Bounds(lower=torch.cat([-free, torch.tensor([[0.0], [-1.7]]).double()]), upper=torch.cat([free, most])),
    )
    return Setting(laws, truth, {"goal": path[..., -1], "center": center, "radius": radius})


@case(50, tiny=8, small=0.02, far=0.2, channels=True)
def car(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Place, heading, speed, acceleration and steering of a car beside discs; its acceleration to the side is limited."""
    base = 1.5

    def sideways(u: Tensor) -> Tensor:
        return u[..., 3, :].square() * torch.tan(u[..., 5, :]) / base

    push = 0.5 * smooth(samples, (size,), generator)
    wheel = (0.15 * smooth(samples, (size,), generator)).clamp(-0.4, 0.4)
    none = torch.zeros(samples, 1, dtype=torch.float64)
    speed = _integral(none + 3.0, push)
    heading = _integral(none, speed * torch.tan(wheel) / base)
    path = torch.stack([_integral(none, speed * f(heading)) for f in (torch.cos, torch.sin)], dim=1)
    truth = torch.cat([path, torch.stack([heading, speed, push, wheel], dim=1)], dim=1)
    center, radius = _beside(path, heading)
    most = 1.01 * sideways(truth).abs().amax(-1, keepdim=True)
    laws = (
        Equality("x", lambda u, p: _steps(u[0], u[3] * torch.cos(u[2]))),
        Equality("y", lambda u, p: _steps(u[1], u[3] * torch.sin(u[2]))),
        Equality("heading", lambda u, p: _steps(u[2], u[3] * torch.tan(u[5]) / base)),
        Equality("speed", lambda u, p: _steps(u[3], u[4])),
        Equality("start", lambda u, p: u[:3, 0]),
        Inequality("sideways", lambda u, p: sideways(u).abs() - p["most"]),
        Inequality("discs", lambda u, p: _inside(u[:2], p["center"], p["radius"])),
        Inequality("steering", lambda u, p: u[5].abs() - 0.45),
    )
    return Setting(laws, truth, {"most": most, "center": center, "radius": radius})


_JOINTS = 7
_REACH = (0.34, 0.0, 0.4, 0.0, 0.4, 0.0, 0.126)  # of a common light arm, in meters, along the axis of each joint


def _hand(joints: Tensor) -> Tensor:
    """Forward kinematics: where the hand of a seven-joint arm is, (…, 7) to (…, 3); axes turn up and sideways by turns."""
    place = torch.zeros_like(joints[..., :3])
    for k in reversed(range(_JOINTS)):
        lifted = torch.stack([place[..., 0], place[..., 1], place[..., 2] + _REACH[k]], dim=-1)
        cos, sin = torch.cos(joints[..., k]), torch.sin(joints[..., k])
        x, y, z = lifted.unbind(-1)
        if k % 2:
            place = torch.stack([cos * x + sin * z, y, cos * z - sin * x], dim=-1)
        else:
            place = torch.stack([cos * x - sin * y, sin * x + cos * y, z], dim=-1)
    return place


@case(40, tiny=5, group="issue", small=0.05, far=0.5)
def arm(samples: int, generator: torch.Generator, size: int) -> Setting:
    """A seven-joint arm whose hand follows a given path; limits of joints and of their speeds."""
    most = torch.tensor([2.97, 2.09, 2.97, 2.09, 2.97, 2.09, 3.05], dtype=torch.float64)
    course = torch.linspace(0.0, 1.0, size, dtype=torch.float64)[:, None]
    middle, swing = randn(samples, 1, _JOINTS, generator=generator), randn(samples, 1, _JOINTS, generator=generator)
    joints = (0.6 * middle.clamp(-2, 2) + 0.8 * swing.clamp(-2, 2) * torch.sin(2.0 * course)).maximum(-0.95 * most)
    joints = joints.minimum(0.95 * most)
    fastest = 1.1 * (joints[:, 1:] - joints[:, :-1]).abs().amax((1, 2), keepdim=True)
    laws = (
        Equality("hand", lambda u, p: _hand(u) - p["path"]),
        Inequality("speed", lambda u, p: (u[1:] - u[:-1]).abs() - p["fastest"]),
        Bounds(lower=-most, upper=most),
    )
    return Setting(laws, joints, {"path": _hand(joints), "fastest": fastest})


@case(24, tiny=4, small=0.02, far=0.2)
def discs(samples: int, generator: torch.Generator, size: int) -> Setting:
    """Discs in a box: no two of them overlap, and their center of mass is given."""
    side = int(size**0.5 + 0.999)
    grid = torch.stack(torch.meshgrid(*[torch.arange(side, dtype=torch.float64)] * 2, indexing="ij"), dim=-1)
    place = grid.reshape(-1, 2)[:size] - 0.5 * (side - 1)
    place = place + 0.2 * (2.0 * torch.rand(samples, size, 2, generator=generator, dtype=torch.float64) - 1.0)
    one, two = torch.triu_indices(size, size, 1)

    def apart(u: Tensor) -> Tensor:
        return (u[..., one, :] - u[..., two, :]).square().sum(-1)

    width = apart(place).amin(-1).sqrt()
    laws = (
        Inequality("overlap", lambda u, p: p["width"].square() - apart(u)),
        Equality("center", lambda u, p: u.mean(0) - p["center"]),
        Bounds(lower=-0.5 * side, upper=0.5 * side),
    )
    return Setting(laws, place, {"width": width, "center": place.mean(1)})


@case(20, tiny=4, small=0.02, far=0.3)
def pendulum(samples: int, generator: torch.Generator, size: int, links: int = 4) -> Setting:
    """A pendulum of rigid rods at many times: lengths, velocities along the rods, and the energy of every time."""

    def rods(u: Tensor) -> Tensor:
        return torch.diff(u, dim=-2, prepend=torch.zeros_like(u[..., :1, :]))

    def energy(u: Tensor) -> Tensor:
        return (0.5 * u[..., 2:].square().sum(-1) + u[..., 1]).sum(-1)

    angle = 0.8 * smooth(samples, (size, links), generator)
    rate = smooth(samples, (size, links), generator)
    rod = torch.stack([torch.sin(angle), -torch.cos(angle)], dim=-1)
    turn = rate[..., None] * torch.stack([torch.cos(angle), torch.sin(angle)], dim=-1)
    truth = torch.cat([rod.cumsum(2), turn.cumsum(2)], dim=-1)
    laws = (
        Equality("length", lambda u, p: rods(u[..., :2]).square().sum(-1) - 1.0),
        Equality("velocity", lambda u, p: (rods(u[..., :2]) * rods(u[..., 2:])).sum(-1)),
        Equality("energy", lambda u, p: energy(u) - p["energy"]),
    )
    return Setting(laws, truth, {"energy": energy(truth)})


@case(40, tiny=6, small=0.01, far=0.1)
def molecule(samples: int, generator: torch.Generator, size: int) -> Setting:
    """A chain of atoms: lengths of bonds, cosines of angles, and atoms farther along the chain that keep apart."""
    turn = torch.cumsum(1.1 + 0.2 * randn(samples, size, generator=generator), dim=1)
    steps = torch.stack(
        [torch.cos(turn), torch.sin(turn), 0.7 + 0.1 * randn(samples, size, generator=generator)], dim=-1
    )
    truth = torch.cumsum(steps, dim=1)
    truth = truth - truth.mean(1, keepdim=True)
    one, two = torch.triu_indices(size, size, 3)

    def bonds(u: Tensor) -> Tensor:
        return u[..., 1:, :] - u[..., :-1, :]

    def cosines(u: Tensor) -> Tensor:
        first, second = bonds(u)[..., :-1, :], bonds(u)[..., 1:, :]
        return (first * second).sum(-1) / (first.norm(dim=-1) * second.norm(dim=-1))

    def apart(u: Tensor) -> Tensor:
        return (u[..., one, :] - u[..., two, :]).square().sum(-1)

    laws = (
        Equality("bonds", lambda u, p: bonds(u).norm(dim=-1) - p["bonds"]),
        Equality("angles", lambda u, p: cosines(u) - p["angles"]),
        Inequality("apart", lambda u, p: p["least"] - apart(u)),
    )
    params = {"bonds": bonds(truth).norm(dim=-1), "angles": cosines(truth), "least": 0.98 * apart(truth).amin(1)}
    return Setting(laws, truth, params)
