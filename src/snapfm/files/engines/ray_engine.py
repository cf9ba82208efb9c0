"""OnRay: the actors of a Ray cluster compute a plan. Ray schedules and restarts them; this file only hands out numbers.

An actor holds the plan, and with it model and projector, prepared once. Blocks travel as numbers, figures come back; results go
from the actor to the store and never through the driver. An actor that dies, or its node, is restarted elsewhere by Ray; its
block goes to the next actor that has nothing to do. A driver that dies takes its actors along; the same command goes on with the
blocks that are missing.
"""

from __future__ import annotations

import os
import pickle
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from snapfm.errors import SettingError, SnapfmError, require
from snapfm.files.engines.plan import BlockFailed, BlockPlan, Figures, OnMessage, Progress, Tally
from snapfm.files.engines.share import WHOLE, Share

TRIES = 3  # of a block whose worker dies or raises
_LOCAL = "local"  # ray's name for a cluster of its own, on this machine
# Where some actors are idle, a block is also given to one of them after this many seconds without news, or, if that is more,
# this many times as long as the longest block has taken.
_PATIENCE, _LATE = 10.0, 3.0


@dataclass(frozen=True)
class OnRay:
    """The engine of a Ray cluster: the connected one, the one RAY_ADDRESS names, or else one started on this machine.

    `workers` actors with `cpus`, `gpus` and `resources` each; by default as many as the cluster has room for at the start. More
    of them wait for nodes that come later. `on_message` is called with a sentence about every block that is given up.
    """

    workers: int | None = None
    cpus: float = 1.0
    gpus: float = 0.0
    resources: Mapping[str, float] = field(default_factory=dict)
    on_message: OnMessage | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise SettingError(f"--workers expects a whole number >= 1; got {self.workers}. Leave it out for all.")
        if not self.cpus > 0:
            raise SettingError(f"--cpus expects a positive number for each worker; got {self.cpus}. The default is 1.")
        if not self.gpus >= 0:
            raise SettingError(f"--gpus expects a number >= 0 for each worker; got {self.gpus}. The default is 0.")

    @property
    def share(self) -> Share:
        """All blocks."""
        return WHOLE

    @property
    def threads(self) -> int | None:
        """As many as a worker has processors."""
        return max(1, int(self.cpus))

    def run(self, plan: BlockPlan, progress: Progress | None = None) -> Figures:
        """Let actors compute the blocks that are not finished."""
        tally = Tally(plan, self.share, progress, self.on_message)
        if not tally.left:
            return tally.figures
        ray = require("ray", "--engine ray", "ray")
        own, named = not ray.is_initialized(), os.environ.get("RAY_ADDRESS")
        if own:
            # Named, or started: not one that happens to run on this machine, which ray would look for by itself.
            ray.init(address=named or _LOCAL, log_to_driver=False, configure_logging=False)
        try:
            _deal(ray, self._actors(ray, plan, len(tally.left), grows=bool(named) or not own), tally)
            return tally.figures
        finally:
            if own:
                ray.shutdown()

    def _actors(self, ray: Any, plan: BlockPlan, blocks: int, grows: bool) -> list[Any]:
        """Start the actors, no more than there are blocks; Ray places them as resources allow.

        Where none can be placed and nodes cannot come later, the run would wait forever: that is refused.
        """
        room = self._room(ray)
        if not room and not (grows and self.workers):
            raise SettingError(
                f"--cpus, --gpus and --resource expect a cluster with room for one worker of {self._wanted}; its nodes have "
                f"{[_resources(node) for node in _nodes(ray)]}. Ask for less; where nodes come later, say --workers."
            )
        kind = ray.remote(
            max_restarts=-1, num_cpus=self.cpus, num_gpus=self.gpus, resources=dict(self.resources),
        )(_worker(ray))  # fmt: skip
        sent = ray.cloudpickle.dumps(plan)  # not ray.put: an object in the store may be lost with its node
        return [kind.remote(sent) for _ in range(min(self.workers or room, blocks))]

    def _room(self, ray: Any) -> int:
        """Count the workers that fit on the nodes there are."""
        return sum(
            min(int(_resources(node).get(name, 0.0) // amount) for name, amount in self._wanted.items())
            for node in _nodes(ray)
        )

    @property
    def _wanted(self) -> dict[str, float]:
        """What a worker takes, by Ray's names."""
        asked = {"CPU": self.cpus, "GPU": self.gpus, **self.resources}
        return {name: amount for name, amount in asked.items() if amount}


def _deal(ray: Any, actors: list[Any], tally: Tally) -> None:
    """Keep every actor busy until no block is left.

    Only actors that Ray has placed get blocks, and one at a time: a block that waited behind another would be blamed for
    the death of their actor too.
    """
    starting = {actor.ready.remote(): actor for actor in actors}
    running: dict[Any, _Dealt] = {}
    todo, missing, tries, idle = deque(tally.left), set(tally.left), Counter[int](), list[Any]()
    longest = 0.0

    def deal(actor: Any, block: int) -> None:
        running[actor.compute.remote(block)] = _Dealt(actor, block, monotonic())

    try:
        while missing:
            patience = max(_PATIENCE, _LATE * longest) if idle else None
            found, _ = ray.wait([*starting, *running], num_returns=1, timeout=patience)
            if not found:
                # Its actor may wait for a node that never comes back. Computed twice, a block has the same bits.
                for late in _stuck(running)[: len(idle)]:
                    deal(idle.pop(), late)
                continue
            (ready,) = found
            if ready in starting:
                idle.append(starting.pop(ready))
                _check_started(ray, ready)
            else:
                one = running.pop(ready)
                block, answer = one.block, _answer(ray, ready)
                failed = isinstance(answer, ray.exceptions.RayError)
                if block in missing and failed:
                    tries[block] += 1
                elsewhere = any(other.block == block for other in running.values())
                if block not in missing or (failed and elsewhere):
                    pass  # another actor was faster, or is at it
                elif failed and tries[block] < TRIES:
                    todo.appendleft(block)
                else:
                    missing.remove(block)
                    if failed:
                        tally.given_up(block, f"{TRIES} times: {_reason(ray, answer)}", answer)
                    else:
                        tally.computed(block, answer)
                        longest = max(longest, monotonic() - one.since)
                if isinstance(answer, ray.exceptions.RayActorError):
                    starting[one.actor.ready.remote()] = one.actor  # once Ray has placed it again
                else:
                    idle.append(one.actor)
            while todo and idle:
                deal(idle.pop(), todo.popleft())
    finally:
        for actor in actors:
            ray.kill(actor)
        # A block that two actors have ends with the faster one: the other may still write, to the same bits.
        if running:
            ray.wait(list(running), num_returns=len(running), timeout=_PATIENCE)


def _nodes(ray: Any) -> list[Any]:
    return [node for node in ray.nodes() if node["Alive"]]


def _resources(node: Any) -> dict[str, float]:
    """Return what a node has, without what Ray uses for itself."""
    return {name: amount for name, amount in node["Resources"].items() if ":" not in name and "memory" not in name}


def _worker(ray: Any) -> type[Any]:
    """Return the class of the actors; made here, because decorating needs ray."""

    class Worker:
        """A plan in another process."""

        def __init__(self, sent: bytes) -> None:
            self.plan: BlockPlan = pickle.loads(sent)
            self.joined = False

        @ray.method(max_task_retries=-1)  # type: ignore[untyped-decorator, unused-ignore]
        def ready(self) -> None:
            """Answer as soon as Ray has placed this actor, and again where it has placed it anew."""

        # Not retried by Ray, which would spend all tries on an actor that it still looks for, within seconds of a node's loss.
        def compute(self, block: int) -> Figures | SnapfmError:
            """Compute a block. What would happen again is returned, so that only the rest is tried again."""
            try:
                if not self.joined:
                    self.plan.join()
                    self.joined = True
                return dict(self.plan.compute(block, lambda share: None))
            except SnapfmError as failure:
                return type(failure)(str(failure))  # without what it refers to, which may not travel

    return Worker


@dataclass(frozen=True)
class _Dealt:
    """A block in the hands of an actor."""

    actor: Any
    block: int
    since: float


def _stuck(running: Mapping[Any, _Dealt]) -> list[int]:
    """Return the blocks that one actor has, those first that it has had longest."""
    held = Counter(one.block for one in running.values())
    return [one.block for one in sorted(running.values(), key=lambda one: one.since) if held[one.block] == 1]


def _answer(ray: Any, ready: Any) -> Any:
    """Return what an actor says of a block: its figures, or a RayError. Raise a failure that would come again."""
    try:
        answer = ray.get(ready)
    except ray.exceptions.RayError as failure:
        return failure
    if isinstance(answer, SnapfmError):
        raise answer
    return answer


def _check_started(ray: Any, ready: Any) -> None:
    try:
        ray.get(ready)
    except ray.exceptions.RayError as failure:
        raise BlockFailed(
            f"workers are expected to start; one did not: {_reason(ray, failure)}. Look for packages or files that its machine "
            "lacks, then start the same command again: finished blocks are kept."
        ) from failure


def _reason(ray: Any, failure: Any) -> str:
    """Say in a few words what Ray says of the last try."""
    if isinstance(failure, ray.exceptions.RayTaskError):
        return f"{type(failure.cause).__name__}: {failure.cause}"
    lines = str(failure).strip().splitlines()
    if isinstance(failure, ray.exceptions.RayActorError):
        return lines[-1].strip() if failure.actor_init_failed else "its worker died, as when memory runs out"
    return lines[0]
