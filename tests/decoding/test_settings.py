import math

import pytest

from transduce.decoding.settings import SearchSettings, named
from transduce.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        ({"beam": 0}, ["--beam", "is 0", "1 to 1,000"]),
        ({"beam": 100_000}, ["--beam", "100000"]),
        ({"beam": 2.5}, ["--beam", "2.5"]),
        ({"sample": True, "temperature": 0}, ["--temperature", "0.001"]),
        ({"sample": True, "temperature": 1e-40}, ["--temperature", "1e-40"]),
        ({"sample": True, "seed": -1}, ["--seed", "-1"]),
        ({"sample": True, "top_p": 0}, ["top_p", "--top-p"]),
        ({"diversity": 1e39, "diverse_groups": 2}, ["--diversity", "1e+39"]),
        ({"coverage_penalty": math.nan}, ["--coverage-penalty", "nan"]),
        ({"min_length": 10**9}, ["--min-length", "1000000000"]),
        ({"extra_length": 10**9}, ["--extra-length", "1000000000"]),
        ({"length_penalty": 5000}, ["--length-penalty", "5000"]),
        ({"length_penalty": -10000}, ["--length-penalty", "-10000"]),
        ({"length_penalty": math.nan}, ["--length-penalty", "nan"]),
        ({"beam": 4, "diverse_groups": 3}, ["4", "3 groups", "--diverse-groups"]),
        ({"min_length": 5, "max_length": 5}, ["--max-length", "--min-length"]),
        ({"too_long": "throw"}, ["--too-long", "throw", "split"]),
        ({"stop": "later"}, ["--stop", "later", "exact"]),
        ({"penalty": "none"}, ["--penalty", "none", "paper"]),
    ],
)
def test_values_out_of_range_are_named(settings, facts):
    with pytest.raises(ConfigError) as error:
        SearchSettings(**settings)
    assert all(fact in str(error.value) for fact in facts)


@pytest.mark.parametrize(
    ("settings", "without_effect", "because_of"),
    [
        ({"top_k": 3}, "--top-k", "--sample"),
        ({"top_p": 0.5}, "--top-p", "--sample"),
        ({"temperature": 0.5}, "--temperature", "--sample"),
        ({"seed": 7}, "--seed", "--sample"),
        ({"diversity": 0.7}, "--diversity", "--diverse-groups"),
        ({"sample": True, "beam": 2}, "--beam", "--sample"),
        ({"sample": True, "length_penalty": 1.0}, "--length-penalty", "--sample"),
        ({"sample": True, "penalty": "plain"}, "--penalty", "--sample"),
        ({"sample": True, "coverage_penalty": 1.0}, "--coverage-penalty", "--sample"),
        ({"sample": True, "diverse_groups": 2}, "--diverse-groups", "--sample"),
        ({"sample": True, "stop": "first"}, "--stop", "--sample"),
    ],
)
def test_settings_without_effect_are_refused(settings, without_effect, because_of):
    with pytest.raises(ConfigError) as error:
        SearchSettings(**settings)
    assert without_effect in error.value.problem
    assert because_of in error.value.problem


def test_messages_name_a_setting_as_python_and_the_command_line_do():
    assert named("top_p") == "top_p (--top-p)"


def test_the_beam_is_at_least_as_wide_as_the_number_of_candidates():
    assert SearchSettings(beam=2, nbest=5).width == 5
    assert SearchSettings(beam=6, nbest=5).width == 6
    assert SearchSettings(sample=True, nbest=2).width == 2


def test_the_limit_of_a_target():
    assert SearchSettings().target_limit(10, None) == 60
    assert SearchSettings(max_length=20).target_limit(10, None) == 20
    assert SearchSettings(max_length=20).target_limit(10, None, required=30) == 31
    assert SearchSettings(max_length=20).target_limit(10, 25, required=30) == 25
    assert SearchSettings(extra_length=0).target_limit(0, None) == 1
