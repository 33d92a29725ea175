"""Words after which a full stop need not end a sentence, and words that often begin one, per language.

Keys are two-letter codes of ISO 639; words are in lower case and without their last full stop.
"""

from functools import cache
from typing import NamedTuple

_CODES = {
    **{
        "eng": "en",
        "deu": "de",
        "ger": "de",
        "fra": "fr",
        "fre": "fr",
        "spa": "es",
        "por": "pt",
        "ita": "it",
    },
    **{
        "nld": "nl",
        "dut": "nl",
        "rus": "ru",
        "ukr": "uk",
        "pol": "pl",
        "ces": "cs",
        "cze": "cs",
        "hin": "hi",
    },
    **{
        "kor": "ko",
        "zho": "zh",
        "chi": "zh",
        "jpn": "ja",
        "ara": "ar",
        "arb": "ar",
        "ell": "el",
        "gre": "el",
    },
    **{"swe": "sv", "dan": "da", "nob": "nb", "nor": "nb", "no": "nb", "fin": "fi", "hun": "hu", "tur": "tr"},
    **{
        "cmn": "zh",
        "yue": "zh",
        "est": "et",
        "lav": "lv",
        "slk": "sk",
        "slv": "sl",
        "hrv": "hr",
        "isl": "is",
    },
}

# Before a name or a further word: the sentence goes on, whatever follows.
_TITLES = {
    "": "dr prof st mr mrs ms jr sr sra srta dra mme mlle mgr ing dipl gen col capt lt sgt maj rev hon vs cf",
    "en": "messrs gov sen rep pres adm cmdr supt mt ft e.g i.e viz",
    "de": "hr fr frl med phil rer jur nat inkl exkl evtl ggf bspw bzw sog vgl z.b d.h u.a z d gem lt zzgl"
    " abzgl geb gest ca tel hrsg",
    "fr": "m mm mmes mlles me pr c.-à-d p.ex ex env hab tél",
    "es": "ud uds vd d dª dna dña ee pág gral excmo ilmo p.ej ej ave avda",
    "pt": "exmo exma profa eng av ex.mo p.ex v.ex",
    "it": "sig sig.ra sigg dott dott.ssa avv geom rag on p.es es ecc.mo",
    "nl": "dhr mevr mw ir drs mr bijv d.w.z o.a m.b.t i.v.m t.a.v nl ca",
    "ru": "им ул пр пл гл напр т.е т.н проф акад доц св тов гр г-н обл р-н корп",
    "uk": "ім вул пр пл напр проф акад доц св тов обл",
    "pl": "np tzn tzw ul al pl ks prof hab inż mgr św im m.in",
    "cs": "např tzv tj mj ul nám ing mgr judr mudr sv",
    "sv": "t.ex bl.a s.k d.v.s f.d kl",
    "da": "f.eks bl.a d.v.s hr fr kl ca",
    "nb": "f.eks bl.a dvs hr fr kl ca",
    "fi": "esim mm ns ts ym",
    "tr": "örn yrd doç av sn bkz",
    "hi": "डॉ श्री प्रो पं मो कु स्व इंजी",
    "ar": "د أ م",
    "ko": "",
}
# These may also end a sentence: it does if the next word often begins one.
_ABBREVIATIONS = {
    "": "etc inc ltd co corp bros jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat"
    " approx dept est al ed eds univ assoc ave blvd rd min max",
    "en": "a.m p.m a.d b.c u.s u.k u.n d.c ph.d m.d b.a m.a jan resp esp incl excl",
    "de": "usw u.s.w etc dgl u.ä o.ä str jh jhd mio mrd tsd std sek stck verf anm v.chr n.chr chr uhr jan feb"
    " mär apr jun jul aug sept okt nov dez mo di mi do sa",
    "fr": "etc janv févr avr juil sept oct nov déc apr av j.-c bd",
    "es": "etc uu ee.uu a.c d.c a.m p.m atte tel depto",
    "pt": "etc a.c d.c s.a ltda tel depto",
    "it": "ecc a.c d.c s.p.a tel",
    "nl": "enz e.d jl a.s",
    "ru": "т.д т.п др пр г гг в вв руб коп тыс млн млрд стр н.э с.ш в.д ч мин сек кг см мм км",
    "uk": "т.д т.п ін р рр ст грн коп тис млн млрд стор",
    "pl": "itd itp r w godz zł tys mln mld str",
    "cs": "atd apod r kč tis mil mld str",
    "sv": "osv m.m kr",
    "da": "osv m.m kr",
    "nb": "osv m.m kr",
    "fi": "jne",
    "tr": "vb vs a.ş",
}
# Before a number only.
_BEFORE_NUMBERS = {
    "": "no nr fig art vol p pp ch sec eq ref nos arts figs n num núm pos",
    "de": "nr abs s bd kap abb tab ziff bl hs",
    "fr": "n p art chap fig vol",
    "es": "núm pág págs art cap fig vol",
    "pt": "núm pág art cap fig vol",
    "it": "num pag art cap fig",
    "nl": "nr blz art hfst afb",
    "ru": "рис табл стр гл п ст разд кн",
    "pl": "nr str rys tab art ust",
    "cs": "č str obr tab",
}
_STARTERS = {
    "en": "the it he she they we you i this that these those there but and if when in on at for so then what"
    " why how who where however his her their our my its as after before no yes a an some many all",
    "de": "das der die es er sie wir ihr ich ein eine dies diese dieser dieses aber und wenn als in im am auf"
    " für so dann was warum wie wer wo jedoch sein seine dort hier danach nach vor nein ja doch auch man",
    "fr": "le la les l' il elle ils elles nous vous je on ce cette ces c' un une des mais et si quand dans"
    " en pour alors que pourquoi comment qui où cependant son sa ses leur puis non oui",
    "es": "el la los las él ella ellos nosotros yo usted un una este esta esto estos pero y si cuando en para"
    " entonces qué por cómo quién dónde sin su sus se no sí",
    "pt": "o a os as ele ela eles nós eu você um uma este esta isto mas e se quando em no na para então que"
    " por como quem onde porém seu sua não sim",
    "it": "il lo la i gli le egli lui lei noi voi io un una questo questa ma e se quando in per allora che"
    " perché come chi dove però suo sua non no sì",
    "nl": "de het een hij zij ze wij we ik jij dit dat deze maar en als toen in op voor dan wat waarom hoe"
    " wie waar echter zijn haar er nee ja",
    "ru": "он она они мы вы я ты это этот эта эти но и если когда в на для так тогда что почему как кто где"
    " однако его её их нет да а",
}
# A number and a full stop are an ordinal number here: „am 3. Mai“.
_WITH_ORDINALS = frozenset(
    (
        "de",
        "da",
        "nb",
        "fi",
        "cs",
        "sk",
        "sl",
        "hr",
        "sr",
        "bs",
        "hu",
        "et",
        "lv",
        "lt",
        "is",
        "tr",
        "lb",
        "pl",
    )
)


class SentenceRules(NamedTuple):
    """What full stops may mean in one language."""

    code: str  # of two letters; "" if the language is unknown
    titles: frozenset[str]
    abbreviations: frozenset[str]
    before_numbers: frozenset[str]
    starters: frozenset[str]
    has_ordinals: bool


@cache
def sentence_rules(code: str) -> SentenceRules:
    """Return the rules for a code that `language_code` returned."""

    def words(table: dict[str, str]) -> frozenset[str]:
        return frozenset((table.get("", "") + " " + table.get(code, "")).split())

    starters = _STARTERS.get(code) or " ".join(_STARTERS.values())
    return SentenceRules(
        code,
        words(_TITLES),
        words(_ABBREVIATIONS),
        words(_BEFORE_NUMBERS),
        frozenset(starters.split()),
        code in _WITH_ORDINALS,
    )


@cache
def _known_codes() -> frozenset[str]:
    return frozenset({*_TITLES, *_ABBREVIATIONS, *_STARTERS, *_WITH_ORDINALS, "zh", "ja", "el"})


def language_code(language: str | None) -> str:
    """Return the two letters of a language (``EN-US``, ``deu_Latn``) for which there are rules, else ""."""
    code = (language or "").replace("_", "-").partition("-")[0].lower()
    code = _CODES.get(code, code)
    return code if code in _known_codes() else ""
