import itertools

import pytest
import torch

from snapfm_bench.flow.coupling import Scene, couple, disturb, revisit
from snapfm_bench.flow.path import interpolate


@pytest.fixture
def random() -> torch.Generator:
    return torch.Generator().manual_seed(2)


def test_pairs_are_those_of_optimal_transport(fields: torch.Tensor) -> None:
    pool = couple(fields, seed=4, number=0, size=5)
    partners = fields[pool.index]
    found = float((pool.noise - partners).square().sum())
    costs = [float((pool.noise - partners[list(order)]).square().sum()) for order in itertools.permutations(range(5))]
    assert found == pytest.approx(min(costs), rel=64 * torch.finfo(fields.dtype).eps)
    assert max(costs) > found


def test_a_pool_depends_on_seed_and_number_alone(fields: torch.Tensor) -> None:
    first, again = couple(fields, 4, 1, 6), couple(fields, 4, 1, 6)
    assert torch.equal(first.noise, again.noise)
    assert torch.equal(first.index, again.index)
    for other in (couple(fields, 4, 2, 6), couple(fields, 5, 1, 6)):
        assert not torch.equal(first.noise, other.noise)


def test_noise_stays_white_and_every_field_drawn_is_used(fields: torch.Tensor) -> None:
    pool = couple(fields, 0, 0, 512)
    count = pool.noise.numel()
    assert abs(float(pool.noise.mean())) < 5 / count**0.5
    assert abs(float(pool.noise.var()) - 1) < 5 * (2 / count) ** 0.5
    assert set(pool.index.tolist()) == set(range(len(fields)))


@pytest.mark.parametrize(("size", "wide", "tall"), [(4, 2, 2), (9, 3, 3), (12, 3, 4), (40, 4, 3)])
def test_a_crossed_pool_takes_whole_rows_and_columns(size: int, wide: int, tall: int) -> None:
    data, columns = rows_and_columns(), 4
    pool = couple(data, seed=4, number=0, size=size, rows=3, pairing="crossed")
    assert len(pool.index) == len(pool.noise) == size
    down, along = set((pool.index // columns).tolist()), set((pool.index % columns).tolist())
    assert (len(down), len(along)) == (min(tall, 3), wide)
    assert {(int(i) // columns, int(i) % columns) for i in pool.index} == set(itertools.product(down, along))


def test_a_pool_of_rows_pairs_noise_within_them() -> None:
    rows, columns = 3, 4
    data = torch.randn(rows * columns, 6, 8, generator=torch.Generator().manual_seed(7))
    pool = couple(data, seed=4, number=0, size=12, rows=rows, pairing="rows")
    assert sorted(pool.index.tolist()) == list(range(12))
    assert pool.index.tolist() != sorted(pool.index.tolist(), key=lambda i: i // columns)  # batches mix rows
    for row in range(rows):
        mine = pool.index // columns == row
        noise, partners = pool.noise[mine], data[pool.index[mine]]
        costs = [float((noise - partners[list(o)]).square().sum()) for o in itertools.permutations(range(columns))]
        assert float((noise - partners).square().sum()) == pytest.approx(min(costs), rel=1e-5)


def test_independent_noise_knows_nothing_of_its_field() -> None:
    data = torch.randn(64, 6, 8, generator=torch.Generator().manual_seed(7))
    free, paired = (couple(data, 0, 0, 512, pairing=pairing) for pairing in ("independent", "all"))
    products = [(pool.noise * data[pool.index]).mean(dim=(1, 2)) for pool in (free, paired)]
    assert abs(float(products[0].mean())) < 4 * float(products[0].std()) / 512**0.5
    assert float(products[1].mean()) > 0.2
    assert torch.equal(free.noise, paired.noise)
    assert set(free.index.tolist()) == set(range(64))
    other = couple(data, 0, 0, 512, rows=8, pairing="independent")
    assert torch.equal(other.index, free.index)  # rows play no part


def test_a_field_that_is_not_finite_does_not_stop_the_pairing(fields: torch.Tensor) -> None:
    fields[3] = float("nan")
    assert bool(couple(fields, 0, 0, 8).noise.isfinite().all())


def rows_and_columns() -> torch.Tensor:
    """Fill a table of 3 rows and 4 columns with fields 6 × 8 whose values tell their place in it."""
    places = torch.arange(12.0).view(12, 1, 1)
    return places.expand(12, 6, 8).contiguous()


def test_an_imposed_first_slice_comes_from_a_sibling_of_the_same_column(random: torch.Generator) -> None:
    data, index = rows_and_columns(), torch.arange(12).repeat(10)
    scene = disturb(data, index, torch.ones(120), random, axes=(-1,), rows=3)
    shown, wanted = scene.shown, scene.wanted
    assert torch.equal(shown[:, :, 0], wanted[:, :, 0])
    places = wanted[:, 0, 0].long()
    assert torch.equal(wanted, data[places])
    assert torch.equal(places % 4, index % 4)
    followed, kept = places != index, (places == index) & (shown != wanted).flatten(1).any(1)
    assert bool(followed.any())  # the noise's own field is shown with the slice of a sibling
    assert bool(kept.any())  # or a sibling with the slice of the field


def test_a_slice_of_the_second_axis_comes_from_a_sibling_of_the_same_row(random: torch.Generator) -> None:
    data, index = rows_and_columns(), torch.arange(12).repeat(40)
    scene = disturb(data, index, torch.ones(480), random, axes=(-1, 0), rows=3)
    shown, wanted = scene.shown, scene.wanted
    places = wanted[:, 0, 0].long()
    moved = places != index
    by_column, by_row = places % 4 == index % 4, places // 4 == index // 4
    assert bool((by_column | by_row).all())
    first, second = by_column & moved, by_row & moved
    assert bool(first.any())
    assert bool(second.any())
    assert torch.equal(shown[first][:, :, 0], wanted[first][:, :, 0])
    assert torch.equal(shown[second][:, 0], wanted[second][:, 0])


def test_elsewhere_part_of_the_way_is_gone(random: torch.Generator) -> None:
    data, index = rows_and_columns(), torch.arange(12).repeat(5)
    scene = disturb(data, index, torch.ones(60), random, axes=(-1,), rows=3)
    shown, wanted = scene.shown, scene.wanted
    moved = wanted[:, 0, 0] != data[index][:, 0, 0]
    gone = ((shown - data[index]) / (wanted - data[index]))[moved, :, 1:].flatten(1)
    assert bool(((gone > 0) & (gone < 1)).all())
    torch.testing.assert_close(gone, gone[:, :1].expand_as(gone))
    assert float(gone[:, 0].std()) > 0


def test_the_chance_is_the_flow_time(random: torch.Generator) -> None:
    data, index = rows_and_columns(), torch.arange(12).repeat(100)
    for tau in (0.0, 0.3):
        shown = disturb(data, index, torch.full((1200,), tau), random, axes=(-1,), rows=3).shown
        changed = (shown != data[index]).flatten(1).any(1).float().mean()
        assert abs(float(changed) - 2 / 3 * tau) < 0.08  # one in three draws its own row


def test_the_chance_may_be_given(random: torch.Generator) -> None:
    data, index = rows_and_columns(), torch.arange(12).repeat(100)
    scene = disturb(data, index, torch.zeros(1200), random, axes=(-1,), rows=3, meeting=0.8)
    met = scene.imposed.flatten(1).any(1).float().mean()
    assert abs(float(met) - 0.8) < 0.05


def test_fields_stray_along_differences_of_others(random: torch.Generator) -> None:
    data, index = rows_and_columns(), torch.arange(12).repeat(100)
    scene = disturb(data, index, torch.full((1200,), 0.5), random, stray=0.3)
    shown, wanted = scene.shown, scene.wanted
    assert torch.equal(wanted, data[index])
    strayed = (shown - wanted)[:, 0, 0]
    torch.testing.assert_close(shown - wanted, strayed.view(-1, 1, 1).expand_as(shown), rtol=0.0, atol=1e-5)
    # The places 0 .. 11 have the variance 143/12, differences of two twice that.
    assert float(strayed.std()) == pytest.approx(0.3 * (143 / 6) ** 0.5, rel=0.15)


def test_an_imposed_slice_does_not_stray(random: torch.Generator) -> None:
    data, index = rows_and_columns(), torch.arange(12)
    scene = disturb(data, index, torch.full((12,), 0.99), random, axes=(-1,), rows=3, stray=50.0)
    shown, wanted = scene.shown, scene.wanted
    met = (shown[:, :, 0] == wanted[:, :, 0]).all(1)
    assert int(met.sum()) > 8
    assert torch.equal(scene.imposed[:, :, 0], met[:, None].expand(-1, 6))
    assert not bool(scene.imposed[:, :, 1:].any())
    assert bool((shown != wanted)[:, :, 1:].any())


def test_without_axes_and_straying_fields_stay_as_they_are(random: torch.Generator) -> None:
    data, index = rows_and_columns(), torch.arange(5)
    scene = disturb(data, index, torch.ones(5), random, rows=3)
    shown, wanted = scene.shown, scene.wanted
    assert torch.equal(shown, data[:5])
    assert torch.equal(wanted, data[:5])


def test_own_answers_are_shown_to_a_share_and_answers_to_answers_to_half_of_it(random: torch.Generator) -> None:
    noise = torch.randn(8, 6, 8, generator=random, dtype=torch.float64)
    shown = torch.randn(8, 6, 8, generator=random, dtype=torch.float64)
    imposed = torch.zeros_like(shown, dtype=torch.bool)
    imposed[:, :, 0] = True
    tau = torch.linspace(0.4, 0.9, 8, dtype=torch.float64)
    seen: list[torch.Tensor] = []

    def velocity(u: torch.Tensor, times: torch.Tensor) -> torch.Tensor:
        """Lead from anywhere to half of it by τ = 1."""
        assert not torch.is_grad_enabled()
        seen.append(times)
        return -0.5 * u / (1 - times).view(-1, 1, 1)

    found = revisit(velocity, noise, Scene(shown, torch.zeros_like(shown), imposed), tau, random, share=0.5)
    assert [len(times) for times in seen] == [1, 2, 4]
    # The one that walks three steps walks them in one pace, towards its own flow time, and so does the second.
    first, second, third = (times[0] for times in seen)
    torch.testing.assert_close(second - first, third - second)
    walker = int((tau - (third + (third - second))).abs().argmin())
    assert 0.01 <= float(third - second) <= 0.1
    expected = shown[walker]
    for times in (first, second, third):
        answer = 0.5 * interpolate(noise[walker][None], expected[None], times[None])[0]
        expected = torch.where(imposed[walker], shown[walker], answer)
    torch.testing.assert_close(found[walker], expected)
    assert int((found == shown).flatten(1).all(1).sum()) == 4
    assert torch.equal(found[:, :, 0], shown[:, :, 0])


def test_no_walk_starts_before_the_noise(random: torch.Generator) -> None:
    noise, shown = torch.randn(2, 4, 6, 8, generator=random)
    times: list[torch.Tensor] = []

    def velocity(u: torch.Tensor, tau: torch.Tensor) -> torch.Tensor:
        times.append(tau)
        return u

    revisit(velocity, noise, Scene(shown, shown, shown > 9), torch.full((4,), 1e-3), random, share=1.0)
    assert all(bool((tau == 0).all()) for tau in times)
    assert len(times) == 3


def test_no_share_leaves_what_is_shown(random: torch.Generator) -> None:
    shown = torch.randn(3, 6, 8, generator=random)
    scene = Scene(shown, shown + 1, torch.zeros_like(shown, dtype=torch.bool))
    assert torch.equal(revisit(lambda u, tau: u, shown, scene, torch.full((3,), 0.5), random, share=0.0), shown)
