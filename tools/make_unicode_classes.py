#!/usr/bin/env python3
"""Writes src/text/unicode_classes.inc: which code points are \\p{L}, \\p{N}, \\s, digits, and open to NFC.

Usage: python tools/make_unicode_classes.py > src/text/unicode_classes.inc   (needs: pip install tokenizers==0.23.3)

The classes are read off the `tokenizers` package itself, by asking its regex engine and its Digits pre-tokenizer about
every code point, since equal ids need its version of Unicode and not that of some other library.
"""
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

SURROGATES = range(0xD800, 0xE000)


def isolated(pre_tokenizer):
    """Code points that the pre-tokenizer makes a piece of their own between separators that it never matches."""
    hits = set()
    for base in range(0, 0x110000, 0x1000):
        text = "".join("\x01" + chr(c) for c in range(base, base + 0x1000) if c not in SURROGATES)
        hits.update(ord(p) for p, _ in pre_tokenizer.pre_tokenize_str(text) if len(p) == 1 and p != "\x01")
    return hits


def regex_class(pattern):
    return isolated(pre_tokenizers.Split(Regex(pattern), behavior="isolated"))


def nfc_sets():
    """(open, first): a text without open characters is its own NFC form, and only a first can compose with what follows it. By the normalizer's own Unicode, which is older than that of its regex engine: it takes newer marks for letters.
    """
    nfc = normalizers.NFC().normalize_str
    open_set = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))  # Hangul vowels and finals
    first = set(range(0x1100, 0x1113)) | set(range(0xAC00, 0xD7A4))     # Hangul initials and syllables
    for c in range(0x110000):
        if c in SURROGATES:
            continue
        char = chr(c)
        # Marks move before or behind marks of other classes: U+0334 has class 1, U+0316 class 220.
        moves = nfc(f"\u2603{char}\u0334") != f"\u2603{char}\u0334" or nfc(f"\u2603\u0316{char}") != f"\u2603\u0316{char}"
        if moves or nfc(char) != char:
            open_set.add(c)
        decomposition = unicodedata.decomposition(char)
        if decomposition and decomposition[0] != "<":
            parts = [chr(int(x, 16)) for x in decomposition.split()]
            if nfc("".join(parts)) == char and len(parts) == 2:
                first.add(ord(parts[0]))
                first.add(c)  # what follows may move between its parts
                open_set.add(ord(parts[1]))
    return open_set, first


def ranges(points):
    out = []
    for c in sorted(points):
        if out and out[-1][1] == c:
            out[-1][1] = c + 1
        else:
            out.append([c, c + 1])
    return out


def emit(name, comment, points):
    print(f"// {comment}")
    print(f"constexpr CodePointRange {name}[] = {{")
    line = "   "
    for begin, end in ranges(points):
        item = f" {{0x{begin:X}, 0x{end:X}}},"
        if len(line) + len(item) > 120:
            print(line)
            line = "   "
        line += item
    print(line)
    print("};")


def main():
    number = regex_class(r"\p{N}")
    print(f"// Made by tools/make_unicode_classes.py from tokenizers {tokenizers.__version__} and Python's unicodedata "
          f"{unicodedata.unidata_version}.\n// Ranges [begin, end). Do not edit.")
    emit("letter_ranges", r"\p{L}", regex_class(r"\p{L}"))
    emit("number_ranges", r"\p{N}", number)
    emit("space_ranges", r"\s", regex_class(r"\s"))
    emit("digit_only_ranges", r"Taken as digits by the Digits pre-tokenizer, whose Unicode is newer, but not \p{N}",
         isolated(pre_tokenizers.Digits(individual_digits=True)) - number)
    nfc_open, nfc_first = nfc_sets()
    emit("nfc_open_ranges", "Can change under NFC, or change what comes before", nfc_open)
    emit("nfc_first_ranges", "Can compose with an open character that follows", nfc_first)


if __name__ == "__main__":
    sys.exit(main())
