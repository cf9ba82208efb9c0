"""Settings of problems: what is known of them, and what a wrong one says."""

import pytest

import snapfm
from snapfm.errors import SettingError, UnknownName
from snapfm_bench.problems import defaults, names


@pytest.mark.parametrize("name", names())
def test_the_defaults_build_the_problem_itself(name):
    assert snapfm.problem(name, **defaults(name)).grid == snapfm.problem(name).grid


def test_defaults_of_an_unknown_problem_are_refused():
    with pytest.raises(UnknownName, match="got 'moon'"):
        defaults("moon")


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"size": 3}, UnknownName, r"expects settings among \['nx', .*'mass'\]; got 'size'\. Use one of these names"),
        ({"nx": 2.5}, SettingError, r"expects nx to be a whole number; got 2\.5\. Give .*, or leave it out for 101"),
        ({"nx": True}, SettingError, r"expects nx to be a whole number; got True\."),
        ({"position": "left"}, SettingError, r"expects position to be a number or none; got 'left'\."),
        ({"flux": 1}, SettingError, r"expects flux to be one of \['smoothed', 'split', 'godunov'\]; got 1\."),
    ],
)
def test_wrong_settings_are_refused(settings, error, words):
    with pytest.raises(error, match=words):
        snapfm.problem("burgers-ic-mass-flux", **settings)


def test_whole_numbers_pass_for_numbers_and_none_where_it_means_something():
    burgers = snapfm.problem("burgers-ic-mass-flux", position=0, flux_steps=None)
    assert [law.name for law in burgers.laws] == ["initial", "mass", "flux"]
    assert snapfm.problem("reaction-diffusion-ic-mass", inner=True).grid.shape == (64, 100)
