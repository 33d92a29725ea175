from hypothesis import given
from hypothesis import strategies as st
from translators import TOKENIZER

from transduce.data.factors import FactorVocabulary
from transduce.data.tokenizer import TokenizerPair
from transduce.data.tokenizer_training import train_tokenizer
from transduce.decoding.glossary import Glossary
from transduce.decoding.pieces import LineSplitter, split_text


@given(st.text(max_size=60), st.integers(1, 12))
def test_pieces_fit_and_are_the_text(text, limit):
    pieces = split_text(text, lambda piece: len(piece) <= limit)
    assert all(len(piece) <= limit for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())


def test_pieces_are_sentences():
    text = (
        "Two dogs are running. A man with Dr. Smith sleeps, he says. Yes! No. "
        "犬が走っていますよ、たぶん。男の人が寝ています。 That is all"
    )
    assert split_text(text, lambda piece: len(piece) <= 60) == [
        "Two dogs are running.",
        "A man with Dr. Smith sleeps, he says.",
        "Yes! No. 犬が走っていますよ、たぶん。",
        "男の人が寝ています。 That is all",
    ]
    assert split_text(text, lambda piece: True) == [text]


def test_a_long_sentence_is_split_at_pauses_then_between_words():
    text = "a man, a dog, and a very long story: the end"
    assert split_text(text, lambda piece: len(piece) <= 24) == [
        "a man, a dog,",
        "and a very long story:",
        "the end",
    ]
    assert split_text("one two three four", lambda piece: len(piece) <= 9) == ["one two", "three", "four"]
    assert split_text("about 1,000 men at 10:30", lambda piece: len(piece) <= 16) == [
        "about 1,000 men",
        "at 10:30",
    ]
    assert split_text("犬が、走って、寝て", lambda piece: len(piece) <= 7) == ["犬が、走って、", "寝て"]


def test_the_prefix_and_constraints_belong_to_the_first_piece_and_terms_to_their_own():
    glossary = Glossary((("fox", "dog"),), ("over",))
    splitter = LineSplitter(TOKENIZER, 12, False, "the", glossary)
    ((line,),) = [splitter.split(["a quick one, a fox, the fox"], 7)]
    assert line.tokens == 28
    assert [piece.text for piece in line.pieces] == ["a quick", "one,", "a fox,", "the fox"]
    assert [(piece.line, piece.index) for piece in line.pieces] == [(7, 0), (7, 1), (7, 2), (7, 3)]
    assert [bool(piece.prefix) for piece in line.pieces] == [True, False, False, False]
    assert [len(piece.phrases) for piece in line.pieces] == [1, 0, 1, 1]
    first = line.pieces[0]
    assert first.required_length == len("the") + len("over")
    assert first.is_satisfied_by([*first.prefix, 9, *first.phrases[0]])
    assert not first.is_satisfied_by([*first.prefix, 9])
    assert not first.is_satisfied_by([9, *first.prefix, *first.phrases[0]])


def test_random_numbers_depend_on_the_line_and_the_piece():
    splitter = LineSplitter(TOKENIZER, 5, False, "", None)
    lines = [*splitter.split(["fox dog", "fox"], 0), *splitter.split(["fox"], 1)]
    numbers = [piece.generator(1).random() for line in lines for piece in line.pieces]
    assert len(set(numbers)) == 3
    assert numbers[2] == numbers[3]
    assert lines[0].pieces[0].generator(2).random() != numbers[0]


BPE = train_tokenizer(["ab 犬が、猫が"], ["ab"], size=300)
FACTORED = TokenizerPair(BPE.source, BPE.target, [FactorVocabulary.of(str(number) for number in range(20))])


@given(st.lists(st.text("ab犬、。.,", min_size=1, max_size=9), max_size=12), st.integers(5, 12))
def test_pieces_keep_the_factors_of_their_words(words, limit):
    """Also where a word is split into parts."""
    line, factors = "  ".join(words), " ".join(str(number) for number in range(len(words)))
    (whole,) = LineSplitter(FACTORED, None, False, "", None).split([line], 0, [[factors]])
    (split,) = LineSplitter(FACTORED, limit, False, "", None).split([line], 0, [[factors]])
    by_character = [number for number, word in enumerate(words) for _ in word]
    for piece in split.pieces:
        assert len(piece.ids) == len(piece.factors[0]) == len(piece.source)
        values = []
        for part in piece.text.split():
            values.append(str(by_character[0]))
            del by_character[: len(part)]
        assert piece.factors == [
            rows.tolist()[0] for rows in FACTORED.source_columns([piece.text], [[" ".join(values)]])[1:]
        ]
    assert not by_character
    assert whole.pieces[0].source.shape == (len(whole.pieces[0].ids), 2)
