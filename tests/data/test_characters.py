from hypothesis import given
from hypothesis import strategies as st

from transduce.data.characters import Characters

batches = st.lists(st.text("abcdéж🍜") | st.text(), max_size=5)


@given(seen=st.lists(batches, max_size=3), others=batches)
def test_what_was_never_seen_is_found_as_often_as_it_stands_there(seen, others):
    characters = Characters()
    for batch in seen:
        characters.add(batch)
    known = {character for batch in seen for text in batch for character in text}
    found = {
        index: new
        for index, text in enumerate(others)
        if (new := "".join(character for character in text if character not in known))
    }
    assert characters.unseen(others) == found
