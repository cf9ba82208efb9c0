"""Answers, input by input: times of projections, constraint errors by law, and whose answers are nearest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest

from snapfm_bench import published
from snapfm_bench.judge import Verdict
from snapfm_bench.judge import nearest as nearest_to
from snapfm_bench.pages.document import PUBLISHED, Block, Entry, Section, Table, Words, columns, table, titled
from snapfm_bench.record import CellState
from snapfm_bench.suites.projection.report.loaded import Report, ReportCase, fastest, outcome, title, typical
from snapfm_bench.suites.projection.suite import OURS, Kind, MethodTurn, ProjectionCell
from snapfm_bench.text import NOTHING, short, size, spread, times, two

# Distances that differ by less than this share are equal. The share is of the tolerance where a distance is below it: an input
# that is already feasible is within rounding of its projection.
NEARER = 1e-6
_PROJECTION = (
    "Milliseconds per sample: the median of the hot calls on the whole batch, or the only call if a method is too slow for more, "
    "and the range from the fastest to the slowest. With each figure: how many samples the judge accepts, and the time relative "
    "to {ours}. The judge alone counts, whatever the method reports; a *false claim* is a sample that the method reports as "
    "converged and the judge does not accept. Bold is the fastest of those with the most samples accepted. At τ = 1 most methods "
    "have nothing left to do. Violation and stationarity are the worst over all samples and inputs. *Cold* is everything before "
    "the first hot call: structure, model, first call."
)
_ERRORS = (
    "Mean over all samples of ‖R‖₂ of each law, in float64 and in the law's own units; with it the worst single row of any "
    "sample. Measured on the final fields of a walk or, for a case without walks, on the answers to its last input. Samples that "
    "did not converge count too. *Published* errors are those of the paper's own samples."
)
_NEAREST = (
    "A projection looks for the nearest lawful field, and finds a local one. Distances ‖u − û‖₂ for the same inputs are "
    f"compared sample by sample, over all inputs of a case. Differences up to {NEARER:g} of the distance, or of the "
    "tolerance if that is larger, count as equal. An answer that the judge does not find lawful has no distance and wins "
    "nothing. Laws may have several local nearest fields, so two correct methods may differ, and an answer may be nearer "
    "because it breaks its laws, within the tolerance. *If laws held* counts, for either side, the samples where that does "
    "not explain it: where √(‖u − û‖² + 2λᵀh(u)), to first order the distance if the laws held exactly, is smaller as well."
)
_NOT_FINITE = "not finite"
_MEGABYTE = 1e6

Row = tuple[str | Entry, ...]


@dataclass(frozen=True)
class Nearness:
    """One rival's distances against ours, sample by sample, all inputs of a case together."""

    method: str
    compared: int  # samples for which both have a feasible answer
    nearer: int  # the rival's is nearer by more than NEARER
    farther: int
    only_rival: int  # feasible answers where ours has none
    only_ours: int
    gain: float  # largest relative gain of the rival over ours; negative where it is never as near
    # Samples that the rival, or ours, would be nearer on too if both kept their laws exactly; as `nearer` and `farther` where the
    # judge did not record that.
    beaten: int
    beats: int

    @property
    def equal(self) -> int:
        """Count the samples where both are equally near."""
        return self.compared - self.nearer - self.farther


def confirmed(verdict: Verdict) -> str:
    """Write how many samples are accepted, and the method's false claims if there are any."""
    words, false = f"{verdict.accepted} of {verdict.samples}", verdict.false_claims
    return f"{words}, {false} false {'claim' if false == 1 else 'claims'}" if false else words


def thresholds(tolerance: float) -> str:
    """Write what the judge accepts."""
    return f"The judge accepts violations up to {tolerance:g}, stationarity and complementarity up to {nearest_to(tolerance):g}."


def projection(book: Report) -> Section | None:
    """Write one table of times per case with projection cells."""
    blocks: list[Block] = [Words(_PROJECTION.format(ours=title(OURS)))]
    for case in book.cases:
        if case.of(Kind.PROJECTION):
            some = next((cell for cell in case.cells if cell.unknowns), case.cells[0])
            about = f"{case.problem}: " if case.problem else ""
            about += f"{some.samples} samples of {some.unknowns:,} unknowns, {some.rows:,} rows. "
            about += thresholds(some.tolerance)
            blocks += titled(
                case.title, (Words(about, note=True), projection_table(case)), folded=case.axis is not None
            )
    return Section("Projection", tuple(blocks)) if len(blocks) > 1 else None


def projection_table(case: ReportCase) -> Table:
    """Tabulate the methods of one case: its inputs across, then the worst of all inputs."""
    cells = case.of(Kind.PROJECTION)
    by_input: dict[str, dict[str, MethodTurn]] = {}
    for method, cell in case.done(Kind.PROJECTION).items():
        for turn in cell.turns:
            by_input.setdefault(turn.input, {})
            if turn.seconds:
                by_input[turn.input][method] = turn
    first = {
        name: fastest({method: (typical(turn), turn.verdict.accepted) for method, turn in turns.items()})
        for name, turns in by_input.items()
    }
    rows: list[Row] = []
    for method, cell in cells.items():
        if cell.state is not CellState.DONE:
            rows.append((title(method), outcome(cell)))
        else:
            entries = [_time(method, turns, method == first[name]) for name, turns in by_input.items()]
            rows.append((title(method), *(entries or [Entry(NOTHING)]), *_worst(cell)))
    tail = ("largest violation", "stationarity", "iterations", "cold, s", "memory")
    return table(("method", *(by_input or ["time"]), *tail), rows)


def errors(book: Report) -> Section | None:
    """Write one table of constraint errors per case whose answers were judged by law."""
    blocks: list[Block] = [Words(_ERRORS)]
    for case in book.cases:
        if any(found.laws for cell in _final_cells(case).values() if (found := _final(cell))):
            blocks += titled(case.title, (error_table(case),), folded=case.axis is not None)
    return Section("Constraint errors", tuple(blocks)) if len(blocks) > 1 else None


def error_table(case: ReportCase) -> Table:
    """Tabulate the methods of one case, laws across, with the published errors under them."""
    given = published.ERRORS.get(case.published, {})
    judged = [law.law for cell in _final_cells(case).values() if (found := _final(cell)) for law in found.laws]
    names = list(dict.fromkeys([*judged, *(law for errors in given.values() for law in errors)]))
    rows: list[Row] = []
    for method, cell in _final_cells(case).items():
        verdict = _final(cell)
        if verdict is None:
            rows.append((title(method), outcome(cell)))
            continue
        errors = {
            law.law: Entry(size(law.error, _NOT_FINITE), f"row {size(law.worst_row, _NOT_FINITE)}")
            for law in verdict.laws
        }
        rows.append((title(method), *(errors.get(name, NOTHING) for name in names), confirmed(verdict)))
    rows += [(f"{column}{PUBLISHED}", *(size(line.get(name)) for name in names)) for column, line in given.items()]
    return table(("method", *names, "converged"), rows)


def nearest(book: Report) -> Section | None:
    """Write in which cases a feasible answer of a rival was nearer than ours, then tabulate the counts."""
    compared = [(case, found) for case in book.cases if (found := case_nearness(case))]
    if not compared:
        return None
    ours = title(OURS)
    words = _cases(compared, lambda one: one.nearer, f"came nearer than {ours} on any sample")
    if any(one.nearer for _, found in compared for one in found):
        words += " " + _cases(compared, lambda one: one.beaten, "did so by more than its violation explains")
    words += " " + _cases(compared, lambda one: one.beats, f"was farther than {ours} by more than violations explain")
    pairs = [(case.title, one) for case, found in compared for one in found]
    counts = columns(
        pairs,
        ("case", lambda pair: pair[0]),
        ("rival", lambda pair: title(pair[1].method)),
        ("both lawful", lambda pair: str(pair[1].compared)),
        ("rival nearer", lambda pair: str(pair[1].nearer)),
        ("if laws held", lambda pair: str(pair[1].beaten)),
        ("equal", lambda pair: str(pair[1].equal)),
        (f"{ours} nearer", lambda pair: str(pair[1].farther)),
        ("if laws held", lambda pair: str(pair[1].beats)),
        ("only rival lawful", lambda pair: str(pair[1].only_rival)),
        (f"only {ours} lawful", lambda pair: str(pair[1].only_ours)),
        ("rival's largest gain", lambda pair: f"{pair[1].gain:.1e}" if pair[1].nearer else NOTHING),
    )
    return Section("Nearest", (Words(_NEAREST), Words(words), counts))


def case_nearness(case: ReportCase) -> list[Nearness]:
    """Compare every rival of a case that had the same inputs as ours; other distances are not comparable."""
    cells = case.done(Kind.PROJECTION)
    ours = cells.get(OURS)
    if ours is None:
        return []
    rivals = [cell for method, cell in cells.items() if method != OURS and cell.inputs == ours.inputs]
    return [nearness(ours, cell) for cell in rivals]


def nearness(ours: ProjectionCell, other: ProjectionCell) -> Nearness:
    """Compare distances on the inputs that both projected; infeasible answers have none and win nothing."""
    mine = {turn.input: turn.verdict for turn in ours.turns}
    compared = nearer = farther = only_rival = only_ours = beaten = beats = 0
    gain = float("-inf")
    for turn in other.turns:
        if turn.input not in mine:
            continue
        for (own, own_exact), (theirs, their_exact) in zip(_distances(mine[turn.input]), _distances(turn.verdict)):
            if own is None or theirs is None:
                only_rival += own is None and theirs is not None
                only_ours += theirs is None and own is not None
                continue
            unit = max(own, ours.tolerance)
            ahead = exact = (own - theirs) / unit
            if own_exact is not None and their_exact is not None:
                exact = (own_exact - their_exact) / unit
            compared += 1
            nearer += ahead > NEARER
            farther += ahead < -NEARER
            beaten += min(ahead, exact) > NEARER
            beats += max(ahead, exact) < -NEARER
            gain = max(gain, ahead)
    return Nearness(other.method, compared, nearer, farther, only_rival, only_ours, gain, beaten, beats)


def _distances(verdict: Verdict) -> zip_longest[tuple[float | None, float | None]]:
    """Pair each sample's distance with its value if the laws were kept exactly."""
    return zip_longest(verdict.distances, verdict.exact_distances)


def _time(method: str, turns: dict[str, MethodTurn], first: bool) -> Entry:
    if method not in turns:
        return Entry(NOTHING)
    turn, ours = turns[method], turns.get(OURS)
    unit = 1e3 / turn.verdict.samples
    parts = [spread(unit * min(turn.seconds), unit * max(turn.seconds)), confirmed(turn.verdict)]
    if ours is not None and method != OURS:
        parts.append(times(typical(turn) / typical(ours)))
    return Entry(f"{two(unit * typical(turn))} ms", "; ".join(part for part in parts if part), first)


def _worst(cell: ProjectionCell) -> Row:
    """Write the worst of all inputs; a missing violation is not finite, worse than any number."""
    verdicts = [turn.verdict for turn in cell.turns]
    medians = [one.iterations_median for one in verdicts if one.iterations_median is not None]
    worst = [one.iterations_worst for one in verdicts if one.iterations_worst is not None]
    ends = [f"{end:g}" for end in (min(medians), max(medians))] if medians else [NOTHING]
    violations, gaps = [one.violation for one in verdicts], [one.stationarity for one in verdicts]
    largest = [max((value for value in values if value is not None), default=None) for values in (violations, gaps)]
    cold = ", ".join(f"{name.replace('_', ' ')} {spent:.2f}" for name, spent in cell.cold.items())
    return (
        _NOT_FINITE if None in violations else size(largest[0]),
        size(largest[1]),
        Entry(" to ".join(dict.fromkeys(ends)), f"at most {max(worst)}" if worst else ""),
        Entry(short(sum(cell.cold.values())), cold) if cell.cold else NOTHING,
        NOTHING if cell.peak_bytes is None else f"{short(cell.peak_bytes / _MEGABYTE)} MB",
    )


def _final_cells(case: ReportCase) -> dict[str, ProjectionCell]:
    return case.of(Kind.WALK) or case.of(Kind.PROJECTION)


def _final(cell: ProjectionCell) -> Verdict | None:
    """Return the verdict on what a cell ends with."""
    if cell.state is not CellState.DONE:
        return None
    return cell.verdict if cell.kind is Kind.WALK else cell.turns[-1].verdict if cell.turns else None


def _cases(compared: list[tuple[ReportCase, list[Nearness]]], count: Callable[[Nearness], int], what: str) -> str:
    """Write in how many cases no rival did something, and who did in the others."""
    beaten = []
    for case, found in compared:
        who = [f"{title(one.method)} on {count(one)} of {one.compared} samples" for one in found if count(one)]
        if who:
            beaten.append(f"{case.title} ({', '.join(who)})")
    words = f"In {len(compared) - len(beaten)} of {len(compared)} cases no rival {what}"
    return f"{words}; exceptions: {'; '.join(beaten)}." if beaten else f"{words}."
