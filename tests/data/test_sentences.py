import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transduce.data.sentences import sentence_spans

# Sentences are separated by "|", which is not part of the text.
EXAMPLES = [
    ("en", "Dr. Smith met J. R. R. Tolkien at 3.15 p.m. on Jan. 5. |He paid $3.50 (approx. 3 euros)."),
    ("en", '"Is it true?" she asked. |"Yes!" |He left... |Then it rained. |What?! |No.'),
    ("en", "See e.g. Fig. 3. |The U.S. is big. |I live in the U.S. |He does not. |So do I. |Good."),
    (
        "en",
        "Visit example.com. |iPhone 3.5 is out. |It costs 1,000.50 dollars! |1. Introduction. |2. The end.",
    ),
    ("en", "He works for Apple Inc. in Cupertino. |The firm (est. 1976) is big.) |“Go.” |Then he left."),
    ("en-US", "Mr. and Mrs. Jones vs. the world. |(He came.) |No. 5 is alive."),
    ("", "hello there. |how are you? |i am fine, e.g. today"),
    ("de", "Das ist z. B. gut. |Am 3. Mai 2020 kam Dr. Müller. |Er sagte: „Komm!“ |Sie ging."),
    (
        "de",
        "Das gilt u. a. für Äpfel, bzw. Birnen usw. |Danach kam Ludwig XIV. nach Köln. |Ist das Nr. 5? |Ja.",
    ),
    ("deu_Latn", "Im Jahr 2020. |Das war am 3. |Er war da. |»Wirklich?« |Der 1. Platz ist frei."),
    ("fr", "M. Dupont est là. |« Vraiment ? » dit-il. |Oui ! |C’est p. ex. ici. |« Non. » |Voir art. 5."),
    ("es", "El Sr. García llegó. |¿Qué tal? |¡Bien! |EE. UU. es grande. |Fin."),
    ("pt-BR", "O Sr. Silva chegou. |A Dra. Ana saiu às 10.30 h. |Fim."),
    ("it", "Il sig. Rossi è qui. |Perché? |Non lo so."),
    ("nl", "Dit is bijv. goed. |Dhr. Jansen komt om 10.00 uur. |Echt waar?"),
    ("ko", "안녕하세요. |저는 학생입니다. |3.5% 올랐다. |2020. 5. 3. 서울에서 만났다. |정말요? |네!"),
    ("zh", "你好。|我是学生。|“真的吗？”他问。|是的！|价格是3.5元。|“走吧。”|“好。”"),
    ("ja", "こんにちは。|私は学生です。|「本当ですか？」と彼は言った。|「はい。」|「いいえ。」 |終わり！"),
    ("ar", "كيف حالك؟ |أنا بخير. |وصل د. محمد. |شكرا! |نعم."),
    ("hi", "मैं ठीक हूँ। |आप कैसे हैं? |डॉ. शर्मा आए। |धन्यवाद।"),
    ("ru", "Это и т. д. |А. С. Пушкин родился в 1799 г. в Москве. |«Правда?» — спросил он. |Нет."),
    ("ur", "یہ کتاب ہے۔ |کیا حال ہے؟ |ٹھیک۔"),
    ("el", "Τι κάνεις; |Καλά. |Ναι!"),
    ("hy", "Բարեւ։ |Լավ եմ։"),
    ("am", "ሰላም ነው። |ደህና።"),
]


@pytest.mark.parametrize(("language", "marked"), EXAMPLES)
def test_sentences_of_a_language(language, marked):
    text = marked.replace("|", "")
    found = [text[begin:end] for begin, end in sentence_spans(text, language)]
    assert found == [sentence.strip() for sentence in marked.split("|")]


@given(
    st.text(st.sampled_from(" \n\t.!?…。？؟।;aAbB1é犬क\"'“”«»()-:"), max_size=80),
    st.sampled_from(["", "de", "el"]),
)
def test_everything_but_white_space_is_in_one_sentence(text, language):
    spans = sentence_spans(text, language)
    assert all(begin < end for begin, end in spans)
    places = [0, *(place for span in spans for place in span), len(text)]
    assert places == sorted(places)
    assert all(not text[begin:end].strip() for begin, end in zip(places[::2], places[1::2], strict=True))
    assert all(text[begin:end].strip() == text[begin:end] for begin, end in spans)


@pytest.mark.parametrize("unit", [". ", "A.", "「", "1. ", ". »", "a"])
def test_the_time_is_linear(unit):
    text = (unit * 1_000_000)[:1_000_000]
    start = time.perf_counter()
    sentence_spans(text, "en")
    assert time.perf_counter() - start < 30
