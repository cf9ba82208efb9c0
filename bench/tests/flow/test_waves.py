import pytest
import torch

from snapfm_bench.flow.waves import principal_profiles, real_waves


@pytest.mark.parametrize("sizes", [(4,), (5,), (3, 4), (16, 16)])
def test_waves_are_an_orthonormal_basis(sizes: tuple[int, ...]) -> None:
    basis = real_waves(sizes)
    points = basis.shape[1]
    torch.testing.assert_close(basis @ basis.T, torch.eye(points, dtype=torch.float64), rtol=0.0, atol=1e-13)
    assert bool((basis[0] == basis[0, 0]).all())  # the constant comes first


def test_the_strongest_waves_and_their_profiles_are_found() -> None:
    basis = real_waves((3, 4))
    random = torch.Generator().manual_seed(0)
    profile = torch.linalg.qr(torch.randn(5, 2, generator=random, dtype=torch.float64))[0].T
    size = torch.randn(40, 2, generator=random, dtype=torch.float64) * torch.tensor([3.0, 1.0])
    fields = torch.einsum("b,x,t->bxt", size[:, 0], basis[7], profile[0])
    fields = fields + torch.einsum("b,x,t->bxt", size[:, 1], basis[2], profile[1])
    waves, found = principal_profiles(fields, basis, 2)
    assert waves.tolist() == [7, 2]
    products = (found * profile).sum(1).abs()
    torch.testing.assert_close(products, torch.ones(2, dtype=torch.float64))
