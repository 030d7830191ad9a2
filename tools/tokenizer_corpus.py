"""The texts on which tokenizers are compared (tools/make_tokenizer_goldens.py): about 1.3 MB, the same on every machine
but for the English and code, which are the Python documentation and sources that come with the interpreter."""
import json
import pydoc_data.topics
import random

SCRIPTS = [  # name, code points, words between blanks?
    ("latin", [*range(0x61, 0x7B), *range(0xC0, 0x180), *range(0x1E00, 0x1F00)], True),
    ("greek", [*range(0x391, 0x3CA), *range(0x1F00, 0x1F16)], True),
    ("cyrillic", [*range(0x410, 0x460)], True),
    ("hebrew", [*range(0x5D0, 0x5EB), *range(0x5B0, 0x5BD)], True),
    ("arabic", [*range(0x620, 0x660), *range(0x660, 0x66A), 0x60C, 0x61F, 0x200F], True),
    ("devanagari", [*range(0x900, 0x980)], True),
    ("bengali", [*range(0x980, 0xA00)], True),
    ("thai", [*range(0xE01, 0xE3B), *range(0xE3F, 0xE5C)], False),
    ("georgian", [*range(0x10A0, 0x1100)], True),
    ("jamo", [*range(0x1100, 0x1200)], True),
    ("hangul", [*range(0xAC00, 0xD7A4)], True),
    ("kana", [*range(0x3041, 0x3097), *range(0x3099, 0x3100)], False),
    ("han", [*range(0x4E00, 0x5800), *range(0x3400, 0x3500), *range(0x20000, 0x20100), *range(0xF900, 0xFA00)], False),
    ("symbols", [*range(0x2000, 0x2E00)], True),
    ("emoji", [*range(0x1F300, 0x1FB00), 0x200D, 0xFE0F, 0x1F3FB, 0x1F3FF], False),
    ("marks", [*range(0x300, 0x370), *range(0x61, 0x7B), *range(0x1DC0, 0x1E00), *range(0x20D0, 0x20F1)], True),
    ("any", [c for c in range(0x20, 0x30000, 7) if not 0xD800 <= c < 0xE000], True),
]

SENTENCES = [
    "北京是中国的首都，有三千多年的历史。今天天气很好，我们去公园散步吧！你吃饭了吗？",
    "图片里面有什么? 2024年3月15日，价格是￥1,299.00元。",
    "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。",
    "오늘은 날씨가 좋네요. 내일 서울에서 만나요!",
    "العربية لغة سامية، يتحدث بها أكثر من ٤٢٠ مليون نسمة. السَّلامُ عَلَيْكُمْ",
    "שלום עולם, מה שלומך היום?",
    "ภาษาไทยเป็นภาษาที่มีระดับเสียงของคำแน่นอนหรือวรรณยุกต์ ราคา ๑๒๓ บาท",
    "नमस्ते दुनिया, आप कैसे हैं? क्षत्रिय",
    "Привет, мир! Как дела? Сегодня 25 декабря.",
    "Größe und Maß: Äpfel, Öl, Übermut. Ça va très bien, à bientôt — naïve café, 12 €.",
    "Tiếng Việt có nhiều dấu: được, những, ở, ưỡn ẹo.",
    "👩‍👩‍👧 👨🏽‍💻 🇫🇷🇩🇪 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ❤️‍🔥 🫠 🥹 龜 T́ 👍🏿👍 ⌚️",
    "DON'T! I'LL we'Ve They'RE it's it'S 'twas O'Neil's 'ſ 'll '' 'tis rock'n'roll I'd've y'all'd",
    "x->y (x):\n    return a[i]**2 if a!=b else {**d}  # noqa: E501",
    "é e\u0301 \u00c5 A\u030a \u212b ﬁ ½ Ⅷ ² \u1e9b\u0323 q\u0307\u0323",
]

# Characters at which the rules of pre-tokenizers change.
TRICKY = (list(" \n\r\t'\"-_.,:;!?()[]{}<>|/\\@#$%^&*+=~`0129aAsStTmMdDlLrReEvVzZ") + ["  ", "   ", "\r\n", "\n\n", "\n \n",
          "\u00a0", "\u3000", "\u2028", "\u0085", "\u000b", "\u000c", "\u001c", "\u200b", "\u200d", "\ufeff", "\u0000",
          "ſ", "ß", "é", "e\u0301", "İ", "ǅ", "ʼ", "’", "٣", "½", "Ⅷ", "²", "９", "漢", "字", "，", "。", "ア", "한", "\u1112\u1161\u11ab",
          "ก", "็", "ا", "ً", "\u202e", "🫠", "🥹", "👩‍👩‍👧", "🇫", "🏽", "\ufe0f", "\u2581", "\u0120", "\ufffd", "\U0001d7d8",
          "\U00011de5", "\U00016ff5", "\U000e0041", "\U0010ffff", "us", "ing", " the", "'s", "'LL", "http://", "<h1>", "</td>"])


def chunks(text, size):
    return [text[i:i + size] for i in range(0, len(text), size)]


def english_and_code(rng):
    topics = pydoc_data.topics.topics
    for key in sorted(topics)[:40]:
        yield from chunks(topics[key], 3000)
    for module in (json, random, json.decoder, __import__("textwrap"), __import__("heapq"), __import__("argparse")):
        with open(module.__file__, encoding="utf-8") as file:
            yield from chunks(file.read(), 2500)
    for _ in range(20):
        yield json.dumps({"id": rng.randrange(10**9), "text": "a\n\tb \u00e9", "list": [rng.random() for _ in range(8)]}, indent=rng.choice([None, 1, 2, 4]))


def scripts(rng):
    for _, points, spaced in SCRIPTS:
        for _ in range(60):
            words = ["".join(chr(rng.choice(points)) for _ in range(rng.randint(1, 9))) for _ in range(rng.randint(1, 40))]
            yield (" " if spaced else "").join(words)
    for sentence in SENTENCES:
        yield sentence
        yield sentence.upper()
        for _ in range(40):
            a, b = sorted(rng.randrange(len(sentence) + 1) for _ in range(2))
            yield sentence[a:b]


def every_character(rng):
    """Each character of the planes in use, between letters, blanks and digits."""
    points = [c for c in range(0x3400) if c >= 0]
    points += [c for c in range(0x3400, 0xE000, 11) if not 0xD800 <= c < 0xE000]
    points += [*range(0xE000, 0xF900, 97), *range(0xF900, 0x10000)]
    points += [*range(0x10000, 0x12000), *range(0x12000, 0x1D000, 13), *range(0x1D000, 0x1FC00), *range(0x1FC00, 0x110000, 1009)]
    points = [c for c in points if not 0xD800 <= c < 0xE000]
    for i in range(0, len(points), 16):
        group = [chr(c) for c in points[i:i + 16]]
        template = rng.choice(["a{}b", " {}", "{} {}", "1{}2", "'{}", "{}\n", ".{}.", "a{}", "  {} x"])
        yield "".join(template.replace("{}", c) for c in group)


def digits_and_blanks(rng):
    for n in range(1, 9):
        yield " ".join(str(rng.randrange(10**(n - 1), 10**n)) for _ in range(20))
        yield "".join(rng.choice("0123456789") for _ in range(n * 7)) + "kg"
    for unit in (" ", "\n", "\t", "\r\n", "\u00a0", "\u3000", " \n", "\n ", "\t ", " \t\n"):
        for n in [*range(1, 20), 30, 31, 32, 33, 62, 63, 64, 65, 100]:
            yield unit * n
            yield "a" + unit * n + "b"
            yield unit * n + "1"
            yield "." + unit * n + "é"
            yield unit * n + "漢"
    for unit in ("a", "A", ".", "-", "=", "1", "漢", "🫠", "us", "ab", "é", "e\u0301", "\u0301", "<", "'", "_", "\u2581", "\0"):
        for n in (1, 2, 3, 7, 24, 25, 26, 100, 1500):
            yield unit * n
    yield "".join(rng.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") for _ in range(4000))


def mixtures(rng):
    for _ in range(12000):
        yield "".join(rng.choice(TRICKY) for _ in range(rng.randint(1, 24)))


def invalid(rng):
    """Bytes that are no UTF-8; both sides read U+FFFD."""
    for b in range(0x80, 0x100):
        yield bytes([b]) + b" x " + bytes([b, 0x41])
    yield b"\xe2\x82 \xf0\x9f\x92 \xed\xa0\x80 \xc0\xaf \xf4\x90\x80\x80 \xe2\x28\xa1 \xf0\x28\x8c\x28 \xf8\x88\x80\x80\x80"
    for _ in range(300):
        yield bytes(rng.randrange(256) for _ in range(rng.randint(1, 40)))


def special(rng, added):
    """Texts with added tokens in them: as control tokens in a trusted text, as plain text otherwise."""
    sample = added if len(added) <= 300 else rng.sample(added, 300)
    for token in sample:
        for before, after in (("x", "y"), (" ", " "), ("", ""), ("\n", "\n"), ("é", "1")):
            yield before + token + after
    for _ in range(2000):
        parts = [rng.choice(sample) if rng.random() < 0.4 else rng.choice(TRICKY) for _ in range(rng.randint(2, 12))]
        yield "".join(parts)
        yield "".join(parts)[rng.randrange(3):]


def cases(added, byte_level):
    """(bytes, parse_special) of every case. `added`: texts of the vocabulary's control and user-defined tokens."""
    rng = random.Random(20240229)
    for maker in (english_and_code, scripts, every_character, digits_and_blanks, mixtures):
        for text in maker(rng):
            yield text.encode("utf-8"), False
    for data in invalid(rng):
        yield data, False
    for text in special(rng, added):
        for parse_special in (False, True):
            yield text.encode("utf-8"), parse_special
