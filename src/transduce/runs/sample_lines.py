"""Lines with which an imported or exported model is tried."""

from transduce.data.tokenizer import SideTokenizer

# The same three sentences in several languages, so that one of them is likely to be the model's.
_LINES = {
    "en": ["Good morning!", "The weather is fine today.", "Where is the nearest train station?"],
    "de": ["Guten Morgen!", "Das Wetter ist heute schön.", "Wo ist der nächste Bahnhof?"],
    "fr": ["Bonjour !", "Il fait beau aujourd'hui.", "Où est la gare la plus proche ?"],
    "es": ["¡Buenos días!", "Hoy hace buen tiempo.", "¿Dónde está la estación más cercana?"],
    "pt": ["Bom dia!", "O tempo está bom hoje.", "Onde fica a estação mais próxima?"],
    "ru": ["Доброе утро!", "Сегодня хорошая погода.", "Где ближайший вокзал?"],
    "zh": ["早上好！", "今天天气很好。", "最近的火车站在哪里？"],
    "ja": ["おはようございます！", "今日は天気がいいです。", "一番近い駅はどこですか。"],
    "ko": ["좋은 아침입니다!", "오늘은 날씨가 좋습니다.", "가장 가까운 역은 어디입니까?"],
    "ar": ["صباح الخير!", "الطقس جميل اليوم.", "أين أقرب محطة قطار؟"],
    "hi": ["सुप्रभात!", "आज मौसम अच्छा है।", "सबसे नज़दीकी रेलवे स्टेशन कहाँ है?"],
}


def sample_lines(side: SideTokenizer) -> list[str]:
    """Return three lines in a language that the tokenizer knows well: with the fewest tokens.

    Tokenizers for two languages know both; then English is more often the source.
    """
    unknown = side.id_of("<unk>", "[UNK]")

    def cost(lines: list[str]) -> tuple[int, int]:
        ids = [token for row in side.encode(lines) for token in row]
        return (0 if unknown is None else ids.count(unknown)), len(ids)

    best, english = min(_LINES.values(), key=cost), _LINES["en"]
    (unknown_english, tokens), (unknown_best, fewest) = cost(english), cost(best)
    return english if unknown_english == unknown_best and tokens <= 1.25 * fewest else best
