"""Numbers with the separators of many languages → plain digits."""

import random
from collections.abc import Iterator
from decimal import Decimal

from transduce.errors import require_babel

LOCALES = (
    "en", "de", "fr", "es", "it", "pt", "nl", "sv", "da", "nb", "fi", "pl", "cs", "hu", "ru", "tr", "ja",
    "hi", "de_CH", "en_IN",
)  # fmt: skip


def number_pairs(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yield random numbers such as ``1.234.567,89``, and their plain forms such as ``1234567.89``.

    All have decimals and at least two separators: 1,234 is a thousand in one language and one in another.
    """
    require_babel()
    from babel.numbers import format_decimal

    generator = random.Random(seed)
    for _ in range(count):
        whole = generator.randrange(10**6, 10 ** generator.randint(7, 12))
        value = Decimal(whole) + Decimal(generator.randint(1, 99)) / 100
        text = format_decimal(value, format="#,##0.00", locale=generator.choice(LOCALES))
        yield text, f"{value:.2f}"
