from hypothesis import given
from hypothesis import strategies as st

from transduce.data.chunks import Chunk, usable

line_bytes = st.one_of(
    st.text(max_size=20).map(str.encode),
    st.binary(max_size=6),
    st.sampled_from([b"", b" ", b"\xe2\x80\xa8", b"good", b"\xc3", b"one\ntwo"]),
)


def is_usable(text):
    try:
        return bool(text.decode().strip())
    except UnicodeDecodeError:
        return False


@given(pairs=st.lists(st.tuples(line_bytes, line_bytes), max_size=15), first_line=st.integers(1, 10**9))
def test_exactly_the_usable_pairs_are_kept_in_order(pairs, first_line):
    kept = usable(
        Chunk(
            [s for s, _ in pairs], [t for _, t in pairs], range(first_line, first_line + len(pairs)), "s", "t"
        )
    )
    assert list(zip(kept.sources, kept.targets, kept.lines, strict=True)) == [
        (source.decode(), target.decode(), line)
        for line, (source, target) in enumerate(pairs, first_line)
        if is_usable(source) and is_usable(target)
    ]
