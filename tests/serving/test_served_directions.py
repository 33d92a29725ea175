from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.errors import ConfigError
from transduce.serving.directions import Direction, Directions
from transduce.serving.errors import RequestError
from transduce.serving.settings import ServedModel

CODES = st.sampled_from(["de", "en", "pt", "pt-BR", "pt-PT", "zh-Hans", "deu_Latn", "xx"])


def served(*names: str) -> Directions:
    pairs = [name.split(">") for name in names]
    return Directions([Direction(Path(f"m{number}"), *pair) for number, pair in enumerate(pairs)])


def found(directions: Directions, source, target) -> str:
    direction = directions.find(source, target)
    return f"{direction.source}>{direction.target}"


def test_codes_ignore_case_and_underscores():
    directions = served("de>en", "zh_Hans>en")
    assert found(directions, "DE", "En") == "de>en"
    assert found(directions, "zh-hans", "en") == "zh_Hans>en"


@pytest.mark.parametrize(
    ("target", "expected"),
    [("en-US", "de>en"), ("en", "de>en"), ("pt-BR", "de>pt-BR"), ("pt-PT", "de>pt-PT")],
)
def test_regions_find_languages_without_them_and_the_other_way_round(target, expected):
    assert found(served("de>en", "de>pt-BR", "de>pt-PT"), "de", target) == expected


def test_a_language_finds_one_of_its_regions_but_no_other_region():
    assert found(served("de>pt-BR"), "de", "pt") == "de>pt-BR"
    with pytest.raises(RequestError, match="pt-PT is not supported"):
        served("de>pt-BR").find("de", "pt-PT")


def test_what_is_clear_may_be_left_out():
    directions = served("de>en", "fr>en", "de>fr")
    assert found(directions, "fr", None) == "fr>en"
    assert found(directions, None, "fr") == "de>fr"
    with pytest.raises(RequestError, match="target"):
        directions.find("de", None)
    with pytest.raises(RequestError, match="source"):
        directions.find(None, "en")


def test_the_unknown_language_is_named():
    directions = served("de>en", "fr>de")
    with pytest.raises(RequestError, match="xx"):
        directions.find("xx", "en")
    with pytest.raises(RequestError, match="yy"):
        directions.find("de", "yy")
    with pytest.raises(RequestError, match="fr to en"):
        directions.find("fr", "en")


def test_a_model_without_languages_takes_everything_but_must_be_alone():
    one = Directions([Direction(Path("m"), None, None)])
    assert one.find("de", "en") is one.find(None, None) is one.all[0]
    assert one.all[0].name == "m"
    with pytest.raises(ConfigError, match="m1"):
        Directions([Direction(Path("m0"), "de", "en"), Direction(Path("m1"), None, None)])


def test_two_models_cannot_serve_one_direction():
    with pytest.raises(ConfigError, match="m0 and m1"):
        served("de>en", "DE>en")


def test_a_text_that_is_in_the_target_language_stays():
    directions = served("de>en", "en>de")
    assert directions.find_detected("en", "en-US").is_identity
    assert not directions.find_detected("de", "en").is_identity
    with pytest.raises(RequestError):
        directions.find_detected("en", "fr")


def test_a_model_within_one_language_is_preferred_to_leaving_a_text_as_it_is():
    assert not served("en>en", "de>en").find_detected("en", "en").is_identity


@given(st.lists(st.tuples(CODES, CODES), min_size=1, max_size=6, unique=True), CODES, CODES)
def test_what_is_served_is_found_exactly(pairs, source, target):
    directions = Directions([Direction(Path(f"{a}-{b}"), a, b) for a, b in pairs])
    for a, b in pairs:
        assert found(directions, a.upper(), b.lower()) == f"{a}>{b}"
    try:
        direction = directions.find(source, target)
    except RequestError:
        assert (source, target) not in pairs
    else:
        assert direction in directions.all
        assert direction.source.split("-")[0] == source.split("-")[0]


def test_languages_come_from_the_folders_unless_they_are_given(dictionary_models):
    folder, _ = dictionary_models
    (own,) = Directions.of([ServedModel(folder=folder)]).all
    assert (own.source, own.target, own.model_source) == ("de", "en", "de")
    (other,) = Directions.of([ServedModel(folder=folder, source="gsw", target="en")]).all
    assert (other.source, other.target, other.model_source) == ("gsw", "en", "de")
    with pytest.raises(ConfigError):
        Directions.of([ServedModel(folder=folder, source="../x", target="en")])
