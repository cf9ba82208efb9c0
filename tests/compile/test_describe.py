"""The text of a structure holds the counts a reader asks for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from snapfm.compile import compile_laws, presolve
from snapfm.display import WIDTH
from snapfm.laws import Bounds, Equality, Inequality, Law

PARAMS = {"u0": torch.zeros(1, 5, dtype=torch.float64)}


def initial(u: Tensor, params: dict[str, Tensor]) -> Tensor:
    return u[:, 0] - params["u0"]


def lines(*laws: Law, shape: tuple[int, ...] = (5, 40)) -> list[str]:
    """Give title, table and sentences, each sentence in one line."""
    found = compile_laws(laws, shape, PARAMS).sheet()
    return [found.title, *("  " + "  ".join(row) for row in (found.heads, *found.rows)), *found.lines]


def test_table() -> None:
    laws = [
        Equality("initial", initial),
        Equality("total", lambda u, p: u.sum(0) - p["u0"].sum()),
        Inequality("energy", lambda u, p: (u[:, 1:] ** 2).sum(0) - (u[:, :-1] ** 2).sum(0)),
        Equality("coupling", lambda u, p: u[0, 1:] * u[1, :-1]),
    ]
    text = lines(*laws)
    assert text[0] == "5×40 field: 200 unknowns, 123 rows, 673 non-zeros (2.74% of the Jacobian)"
    assert text[1].split() == [
        "law",
        "kind",
        "rows",
        "non-zeros",
        "affine",
        "separable",
        "general",
        "derivatives",
    ]
    assert text[2].split("  ")[1:2] == ["initial"]
    table = {line.split()[0]: " ".join(line.split()[1:]) for line in text[2:7]}
    assert table == {
        "initial": "= 0 5 5 5 0 0 constant",
        "total": "= 0 40 200 40 0 0 constant",
        "energy": "≤ 0 39 390 0 39 0 compiled",
        "coupling": "= 0 39 78 0 0 39 compiled",
        "all": "123 673 37% 32% 32%",
    }
    assert text[7] == "presolve: 5 unknowns fixed by single rows, 1 redundant row, 117 rows left"
    assert text[8].startswith("factor of JJᵀ over the rows left: ")
    assert int(text[8].split(": ")[1].removesuffix(" entries").replace(" ", "")) > 117  # more than its diagonal
    assert text[9] == "Redundant: law 'total' row 0 repeats 'initial' rows 0..4; dropped, checked at every call."
    assert len(text) == 10


def test_thousands_are_set_apart() -> None:
    text = lines(Equality("total", lambda u, p: u.sum(0)), shape=(5, 3000))
    assert text[0] == "5×3000 field: 15 000 unknowns, 3 000 rows, 15 000 non-zeros (0.03% of the Jacobian)"


def test_many_redundant_rows_are_counted() -> None:
    text = lines(Equality("initial", initial), Equality("again", initial), Equality("thrice", initial))
    assert text[-7] == "factor of JJᵀ over the rows left: 0 entries"
    assert text[-8] == "presolve: 5 unknowns fixed by single rows, 10 redundant rows, 0 rows left"
    assert text[-6] == "Redundant: law 'again' row 0 repeats 'initial' row 0; dropped, checked at every call."
    assert text[-1] == "  … and 5 more"


def test_rows_apart_and_zero_rows() -> None:
    text = lines(
        Equality("initial", initial),
        Equality("ends", lambda u, p: u[0, 0] + u[4, 0]),
        Equality("partly", lambda u, p: torch.stack([p["u0"][0], u[0, 1]])),
    )
    assert (
        text[-2]
        == "Redundant: law 'ends' row 0 repeats 'initial' rows 0..4 (2 of them); dropped, checked at every call."
    )
    assert text[-1] == "Redundant: law 'partly' row 0 repeats nothing: it is zero; dropped, checked at every call."


def test_too_many_rows_to_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presolve, "SEARCH_LIMIT", 3)
    text = lines(Equality("total", lambda u, p: u.sum(0)))
    assert text[-1] == "factor of JJᵀ over the rows left: 40 entries"  # disjoint rows: the diagonal alone
    assert text[-2] == (
        "presolve: 0 unknowns fixed by single rows, 0 redundant rows, 40 rows left (too many rows to search for redundant "
        "ones)"
    )


def test_rows_scaled_by_params_are_affine_and_evaluated() -> None:
    text = lines(Equality("scaled", lambda u, p: p["u0"] * u[:, 0]))
    assert " ".join(text[2].split()) == "scaled = 0 5 5 5 0 0 compiled"


def test_curvature_too_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Hessian that is not written out changes nothing that is said."""
    monkeypatch.setattr("snapfm.compile.program.PAIR_LIMIT", 10)
    assert lines(Equality("square", lambda u, p: u.sum() ** 2))[2].split()[-2:] == ["1", "compiled"]


def test_law_without_a_scalar_form_is_named_with_its_reason() -> None:
    text = lines(
        Equality("order", lambda u, p: u[:, 0].sort().values - p["u0"]), Equality("total", lambda u, p: u.sum(0))
    )
    assert " ".join(text[2].split()) == "order = 0 5 25 0 0 5 torch, 5 by rows"
    assert " ".join(text[3].split()) == "total = 0 40 200 40 0 0 constant"
    assert text[-1] == (
        "slow path: law 'order' uses sort, which has no scalar form; projected with torch's derivatives"
    )
    assert sum(line.startswith("slow path") for line in text) == 1


def test_no_laws_and_scalar_field() -> None:
    text = lines(shape=())
    assert text[0] == "scalar field: 1 unknown, 0 rows, 0 non-zeros (0.00% of the Jacobian)"
    assert text[2].split() == ["all", "0", "0", "–", "–", "–"]
    assert text[3] == "presolve: 0 unknowns fixed by single rows, 0 redundant rows, 0 rows left"


def test_bounds_are_listed_with_their_limits() -> None:
    some = torch.tensor([[0.5], [1.0], [float("inf")], [float("inf")], [2.0]])
    text = lines(
        Equality("initial", initial),
        Bounds(lower=0.0),
        Bounds(lower=-1.0, upper=1.0, name="range"),
        Bounds(upper=some, name="lid"),
    )
    assert text[4:7] == [
        "bounds 'bounds': 0 ≤ u",
        "bounds 'range': -1 ≤ u ≤ 1",
        "bounds 'lid': u ≤ (0.5 to 2 at 3 points)",
    ]
    assert "bounds 'bounds': 0 ≤ u" in str(compile_laws([Bounds(lower=0.0)], (3,), {}))


def test_every_line_fits_a_narrow_terminal() -> None:
    long = "the total of everything in this field over all of its points"
    laws = [
        Equality("initial", initial),
        Equality(long, initial),
        Equality("order", lambda u, p: u[:, 0].sort().values),
    ]
    text = str(compile_laws(laws, (5, 4000), PARAMS)).splitlines()
    assert max(map(len, text)) <= WIDTH
    assert any(line.strip().startswith(long[:8]) and "…" in line for line in text)  # cut in the table
    assert long in " ".join(" ".join(text).split())  # whole in a sentence


def test_a_structure_represents_itself_in_a_line_and_as_a_table() -> None:
    structure = compile_laws([Equality("initial <b>", initial), Bounds(lower=0.0)], (5, 40), PARAMS)
    assert repr(structure) == "CompiledLaws(5×40 field, 5 rows of 1 law)"
    shown = structure._repr_html_()
    assert "initial &lt;b&gt;" in shown
    assert "<b>initial" not in shown
    assert "0 ≤ u" in shown
