"""Nearest: whether any rival's lawful answer was nearer to the input than ours, sample by sample."""

from __future__ import annotations

from collections.abc import Callable

from snapfm.bench.record import Cell, Kind
from snapfm.bench.report.book import OURS, OWN, Book, Case
from snapfm.bench.report.compare import NEARER, Nearness, nearness
from snapfm.bench.report.document import NOTHING, Entry, Section, Table, Words
from snapfm.bench.report.titles import title

_ABOUT = (
    "A projection is the nearest lawful field. Distances ‖u − û‖₂ of the same inputs are compared sample by sample, all inputs "
    f"of a case together; a difference up to {NEARER:g} of the distance, or of the tolerance where that is larger, is equal. An "
    "answer that is not lawful before the judge has no distance and wins nothing. Laws may have several local nearest fields, so "
    "two honest methods may differ, and an answer may be nearer by what it breaks its laws by, within the tolerance. *Nearer "
    "yet* counts the samples where that does not explain it: where √(‖u − û‖² + 2λᵀh(u)), the distance to first order if the "
    "laws were kept exactly, is smaller as well."
)


def nearest(book: Book) -> Section | None:
    """Say case by case whether somebody came nearer, then give the counts."""
    compared = [(case, found) for case in book.cases if (found := case_nearness(case))]
    if not compared:
        return None
    return Section("Nearest", (Words(_ABOUT), Words(_verdict(compared)), table(compared)))


def case_nearness(case: Case) -> list[Nearness]:
    """Compare every rival of a case that has answers with ours."""
    cells = case.done(Kind.PROJECTION)
    ours = cells.get(OURS)
    return [] if ours is None else [nearness(ours, cell) for cell in cells.values() if _same(ours, cell)]


def _same(ours: Cell, other: Cell) -> bool:
    """Say whether a rival was given the same arrays; distances from others mean nothing."""
    return other.method not in OWN and other.inputs == ours.inputs


def table(compared: list[tuple[Case, list[Nearness]]]) -> Table:
    """Tabulate counts of samples, one row per case and rival."""
    ours = title(OURS)
    heads = (
        "case", "rival", "both lawful", "rival nearer", "nearer yet", "equal", f"{ours} nearer", "only rival lawful",
        f"only {ours} lawful", "rival's largest gain",
    )  # fmt: skip
    rows = []
    for case, found in compared:
        for one in found:
            counts = (one.compared, one.nearer, one.beaten, one.equal, one.farther, one.only_rival, one.only_ours)
            gain = f"{one.gain:.1e}" if one.nearer else NOTHING
            rows.append(
                (Entry(case.title), Entry(title(one.method)), *(Entry(str(count)) for count in counts), Entry(gain))
            )
    return Table(heads, tuple(rows))


def _verdict(compared: list[tuple[Case, list[Nearness]]]) -> str:
    ours = title(OURS)
    words = _cases(compared, lambda one: one.nearer, f"came nearer than {ours} on any sample")
    if not any(one.nearer for _, found in compared for one in found):
        return words
    yet = _cases(compared, lambda one: one.beaten, "did so by more than its broken laws explain")
    return f"{words} {yet}"


def _cases(compared: list[tuple[Case, list[Nearness]]], count: Callable[[Nearness], int], what: str) -> str:
    """Say in how many cases nobody did something, and who did in the others."""
    beaten = []
    for case, found in compared:
        who = [f"{title(one.method)} on {count(one)} of {one.compared} samples" for one in found if count(one)]
        if who:
            beaten.append(f"{case.title} ({', '.join(who)})")
    words = f"In {len(compared) - len(beaten)} of {len(compared)} cases no rival {what}"
    return f"{words}; somebody did in {'; '.join(beaten)}." if beaten else f"{words}."
