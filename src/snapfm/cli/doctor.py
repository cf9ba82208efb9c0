"""`snapfm doctor`: what this installation can do, with a self-test on each device. `snapfm kernels`: compile all kernels now."""

from __future__ import annotations

import json
import platform
import re
import warnings
from importlib import metadata
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from snapfm.errors import SnapfmError

if TYPE_CHECKING:
    import torch

_SAMPLES = 10
_AGREE = 1e-10  # of fields projected on a device and on the CPU
_EXTRAS = ("plot", "data", "ray")  # of docs/installing.md
_REQUIRED = re.compile(r"""^([\w.-]+).*extra == ['"]([\w-]+)['"]""")


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Say what this installation can do, and test it. The exit code is 1 if a projection of the test is wrong."""
    found = _examined()
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    else:
        for name, value in found.items():
            for line in value if isinstance(value, list) else [value]:
                typer.echo(f"{name:10} {line if isinstance(line, str) else _sentence(line)}")
    if not all(test["passed"] for test in found["self-test"]):
        raise typer.Exit(code=1)


def _examined() -> dict[str, Any]:
    import numba
    import torch

    from snapfm import __version__
    from snapfm.kernels.numba.cache import own, shipped
    from snapfm.kernels.threads import workers

    devices = [torch.device("cpu"), *(torch.device("cuda", k) for k in range(torch.cuda.device_count()))]
    return {
        "snapfm": f"{__version__}, Python {platform.python_version()}, torch {torch.__version__}, numba {numba.__version__}",
        "threads": f"{workers()} at once",
        "cache": str(own() or "none: kernels are compiled again in every process")
        + (f"; machine code for {level.name} came with the package" if (level := shipped()) else ""),
        "devices": [_described(one) for one in devices],
        "extras": _extras(),
        "self-test": [_tested(one) for one in devices],
    }


def _extras() -> list[str]:
    """List the extras whose packages are all installed, and those that are not, with the line that installs them."""
    try:
        required = metadata.requires("snapfm") or []
    except metadata.PackageNotFoundError:
        return ["not known: snapfm runs from its sources, without being installed"]
    packages: dict[str, list[str]] = {extra: [] for extra in _EXTRAS}
    for line in required:
        if (found := _REQUIRED.match(line)) and found.group(2) in packages:
            packages[found.group(2)].append(found.group(1))
    missing = [extra for extra, names in packages.items() if not all(map(_installed, names))]
    lines = [f"{', '.join(extra for extra in packages if extra not in missing) or 'none'}: installed"]
    if missing:
        lines.append(f"{', '.join(missing)}: not installed; for example pip install 'snapfm[{missing[0]}]'")
    return lines


def _installed(package: str) -> bool:
    try:
        return bool(metadata.version(package))
    except metadata.PackageNotFoundError:
        return False


def _described(device: torch.device) -> str:
    import torch

    if device.type == "cpu":
        return "cpu: projections run here"
    return f"{device}: {torch.cuda.get_device_name(device)}; its fields are copied to the CPU, projected there, and copied back"


def _tested(device: torch.device) -> dict[str, Any]:
    """Project ten fields onto energies, totals, an inequality and bounds; compare with the CPU."""
    import torch

    from snapfm import Bounds, Equality, Inequality, Projector
    from snapfm.errors import DeviceWarning
    from snapfm.laws import Law

    laws: list[Law] = [
        Equality("energy", lambda u, p: (u**2).sum(0) - p["energy"]),
        Inequality("decay", lambda u, p: (u[:, 1:] ** 2).sum(0) - (u[:, :-1] ** 2).sum(0)),
        Bounds(lower=-2.0, upper=2.0),
    ]
    generator = torch.Generator().manual_seed(0)
    fields = torch.randn(_SAMPLES, 6, 4, generator=generator, dtype=torch.float64)
    energy = torch.linspace(4.0, 2.0, 4, dtype=torch.float64).expand(_SAMPLES, 4).contiguous()
    project = Projector(laws, (6, 4), {"energy": energy[:1]})
    here = project(fields, {"energy": energy})
    with warnings.catch_warnings():  # the list of devices says it
        warnings.simplefilter("ignore", DeviceWarning)
        there = project(fields.to(device), {"energy": energy.to(device)})
    apart = float((there.u.cpu() - here.u).abs().max())
    converged = int(there.converged.sum())
    return {
        "device": str(device),
        "converged": converged,
        "of": _SAMPLES,
        "violation": float(there.violation.max()),
        "stationarity": float(there.stationarity.max()),
        "from_cpu": apart,
        "passed": converged == _SAMPLES and apart <= _AGREE,
    }


def _sentence(test: dict[str, Any]) -> str:
    verdict = "passed" if test["passed"] else "FAILED"
    apart = "" if test["device"] == "cpu" else f", fields {test['from_cpu']:.1e} from those of the CPU"
    return (
        f"{test['device']}: {test['converged']} of {test['of']} converged, violation at most {test['violation']:.1e}, "
        f"stationarity at most {test['stationarity']:.1e}{apart}: {verdict}"
    )


def kernels(
    workers: Annotated[int | None, typer.Option(min=1, help="Processes at once; by default one a core.")] = None,
) -> None:
    """Compile the kernels now and keep them, so that no later call has to wait for it."""
    from snapfm.kernels.numba.ahead import compile_all
    from snapfm.kernels.numba.cache import own, shipped

    if (folder := shipped() or own()) is None:
        raise SnapfmError(
            "snapfm kernels expects a cache folder that it may write; found none. Set SNAPFM_CACHE to a folder."
        )
    began = perf_counter()
    count = compile_all(workers)
    typer.echo(f"{count} kernels in {folder}, {perf_counter() - began:.0f} s")
