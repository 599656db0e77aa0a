"""Languages as clients write them, and their English names, as OpenAI's answers have them."""

from __future__ import annotations

# Whisper's languages with its own codes (whisper/tokenizer.py)
_LIST = """
en english, zh chinese, de german, es spanish, ru russian, ko korean, fr french, ja japanese, pt
portuguese, tr turkish, pl polish, ca catalan, nl dutch, ar arabic, sv swedish, it italian, id
indonesian, hi hindi, fi finnish, vi vietnamese, he hebrew, uk ukrainian, el greek, ms malay, cs
czech, ro romanian, da danish, hu hungarian, ta tamil, no norwegian, th thai, ur urdu, hr
croatian, bg bulgarian, lt lithuanian, la latin, mi maori, ml malayalam, cy welsh, sk slovak, te
telugu, fa persian, lv latvian, bn bengali, sr serbian, az azerbaijani, sl slovenian, kn
kannada, et estonian, mk macedonian, br breton, eu basque, is icelandic, hy armenian, ne nepali,
mn mongolian, bs bosnian, kk kazakh, sq albanian, sw swahili, gl galician, mr marathi, pa
punjabi, si sinhala, km khmer, sn shona, yo yoruba, so somali, af afrikaans, oc occitan, ka
georgian, be belarusian, tg tajik, sd sindhi, gu gujarati, am amharic, yi yiddish, lo lao, uz
uzbek, fo faroese, ht haitian creole, ps pashto, tk turkmen, nn nynorsk, mt maltese, sa
sanskrit, lb luxembourgish, my myanmar, bo tibetan, tl tagalog, mg malagasy, as assamese, tt
tatar, haw hawaiian, ln lingala, ha hausa, ba bashkir, jw javanese, su sundanese, yue cantonese
"""
_NAMES = dict(entry.strip().split(" ", 1) for entry in _LIST.replace("\n", " ").split(","))
_CODES = {name: code for code, name in _NAMES.items()}
# of languages that Whisper calls otherwise than others do
_OTHER_CODES = {"nb": "no", "fil": "tl", "iw": "he", "jv": "jw"}


def english_name(code: str) -> str:
    """Name a language in English; a code without a name stands for itself."""
    return _NAMES.get(code, code)


def read_language(name: str | None) -> str | None:
    """Read a language as a client of any protocol writes it: "de", "de-AT" or "German".

    Returns:
        Its code; None where it is to be detected: for None, "" and "auto". What no model knows
        stands for itself, for the model to refuse.
    """
    name = (name or "").strip().lower()
    if name in ("", "auto"):
        return None
    code = _CODES.get(name) or name.replace("_", "-").partition("-")[0]
    return _OTHER_CODES.get(code, code)
