import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.serving.placeholders import find_protected, find_words


@pytest.mark.parametrize(
    ("text", "protected"),
    [
        ("Hi {name}, {0:.2f} and {{ count }}!", ["{name}", "{0:.2f}", "{{ count }}"]),
        (
            "%s of %d, %1$s %(name)s %5.2f %-5d %ld %@ %%",
            ["%s", "%d", "%1$s", "%(name)s", "%5.2f", "%-5d", "%ld", "%@"],
        ),
        ("100% sure, 100%d'accord, 5 % so", []),
        ("${x} #{y} %{z}", ["${x}", "#{y}", "%{z}"]),
        ('a <x id=1/> b <g id="2">c</g> 1 < 2 > 0', ["<x id=1/>", '<g id="2">', "</g>"]),
        ("See (https://a.b/c_(d)?e=f&g). Or www.a.b, ok", ["https://a.b/c_(d)?e=f&g", "www.a.b"]),
        ("访问https://a.b/c。谢谢 info@a.co.uk까지.", ["https://a.b/c", "info@a.co.uk"]),
        ("Write to first.last+tag@mail.example.org.", ["first.last+tag@mail.example.org"]),
        ("{ not this }, {nor\nthat}, a@b", []),
    ],
)
def test_placeholders(text, protected):
    assert [text[begin:end] for begin, end in find_protected(text)] == protected


def test_words():
    text = "Transduce is Transducer's transduce: Transduce. 東京都"
    assert find_words(text, ["Transduce", "東京", " "]) == [(0, 9), (37, 46), (48, 50)]
    assert find_words("St. Gallen AG", ["St.", "St. Gallen"]) == [(0, 10)]
    assert find_protected("http://Word.x Word", ["Word"]) == [(0, 13), (14, 18)]


@given(st.text("{}%s$<>/a@. \nx()1:", max_size=60))
def test_places_are_in_order_and_do_not_overlap(text):
    places = [place for span in find_protected(text, ["x"]) for place in span]
    assert places == sorted(places)
    assert all(begin < end for begin, end in zip(places[::2], places[1::2], strict=True))
