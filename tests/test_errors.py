"""Exceptions with their builtin parents, statuses with their advice, and the import of optional packages."""

from __future__ import annotations

import inspect
import json

import pytest

from snapfm import errors
from snapfm.errors import MissingDependency, SnapfmError, Status, UnknownName, require, require_all

PARENTS = {
    "ShapeError": ValueError,
    "DtypeError": TypeError,
    "ParamsError": ValueError,
    "LawError": ValueError,
    "UnsupportedLaw": NotImplementedError,
    "UnknownName": KeyError,
    "CheckpointError": ValueError,
    "MissingDependency": ImportError,
    "ProjectionFailed": RuntimeError,
}


@pytest.mark.parametrize("name", PARENTS)
def test_a_caller_may_catch_the_root_or_the_builtin(name: str):
    error = getattr(errors, name)
    for parent in (SnapfmError, PARENTS[name]):
        with pytest.raises(parent, match="what to do"):
            raise error("what to do")


def test_every_exception_has_a_fitting_builtin_parent():
    found = {
        name: cls
        for name, cls in vars(errors).items()
        if inspect.isclass(cls) and issubclass(cls, Exception) and cls.__module__ == errors.__name__
    }
    children = {name for name, cls in found.items() if issubclass(cls, SnapfmError) and cls is not SnapfmError}
    assert children >= set(PARENTS)
    for name in children:
        builtin = [parent for parent in found[name].__mro__ if parent.__module__ == "builtins"]
        assert builtin[0] is not Exception, f"{name} has no builtin parent of its own"


def test_an_unknown_name_is_told_without_quotes_or_escapes():
    assert str(UnknownName("first\nsecond")) == "first\nsecond"
    assert str(UnknownName()) == ""


def test_statuses_are_those_of_the_contract():
    assert [status.name for status in Status] == ["CONVERGED", "INFEASIBLE", "STALLED", "ITERATION_LIMIT", "NONFINITE"]
    assert Status.CONVERGED == 0
    assert all(-128 <= status <= 127 for status in Status)  # they are kept as int8


@pytest.mark.parametrize("status", Status)
def test_every_status_has_advice_of_its_own(status: Status):
    assert len(status.advice) > 40
    assert not status.advice.endswith(".")  # the sentence goes on around it
    assert [other for other in Status if other.advice == status.advice] == [status]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (Status.INFEASIBLE, "laws that contradict each other"),
        (Status.STALLED, "try a larger tolerance"),
        (Status.ITERATION_LIMIT, "try a larger limit"),
        (Status.NONFINITE, "check the network's output"),
    ],
)
def test_the_advice_of_a_failure_says_what_to_try(status: Status, words: str):
    assert words in status.advice


def test_require_gives_an_installed_package():
    assert require("json", "reading records", "data") is json
    assert require("json.decoder", "reading records", "data") is json.decoder


@pytest.mark.parametrize("package", ["snapfm_no_such_package", "snapfm_no_such_package.deep.inside"])
def test_require_says_what_is_missing_for_what_and_how_to_get_it(package: str):
    with pytest.raises(MissingDependency) as caught:
        require(package, "the Ipopt peer", "peers", of="snapfm-bench")
    assert str(caught.value) == (
        "snapfm_no_such_package is needed for the Ipopt peer; it is not installed. "
        "Install it with: pip install 'snapfm-bench[peers]'"
    )
    assert isinstance(caught.value.__cause__, ImportError)


def test_all_that_is_missing_is_named_at_once():
    wanted = {"json": "data", "snapfm_no_such": "plot", "snapfm_nor_this": "ray", "snapfm_nor_that": "plot"}
    with pytest.raises(MissingDependency) as caught:
        require_all("snapfm demo", wanted)
    assert str(caught.value) == (
        "snapfm_no_such, snapfm_nor_this and snapfm_nor_that are needed for snapfm demo; they are not installed. Install them "
        "with: pip install 'snapfm[plot,ray]'"
    )
    with pytest.raises(
        MissingDependency, match=r"^snapfm_no_such is needed for snapfm demo; it is not installed\. Install it"
    ):
        require_all("snapfm demo", {"json": "data", "snapfm_no_such": "plot"})
    require_all("snapfm demo", {"json": "data"})


def test_what_a_distribution_brings_anyway_is_named_without_an_extra():
    with pytest.raises(MissingDependency, match=r"with: pip install snapfm-bench$"):
        require_all("snapfm demo", {"snapfm_no_such": ""}, of="snapfm-bench")
