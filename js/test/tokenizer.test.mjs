// The tokenizer on a small vocabulary. benchmarks/browser/parity.py compares it with Python on any number of texts.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Tokenizer } from "../dist/tokenizer.js";

const TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "##b", "film", "!", "世", "naive", "##s", "σ", "##σ"];
const id = (token) => TOKENS.indexOf(token);
const OPTIONS = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
const WHOLE = {
  version: "1.0",
  truncation: null,
  padding: null,
  added_tokens: ["[PAD]", "[UNK]", "[CLS]", "[SEP]"].map((content) => ({ id: id(content), content, ...OPTIONS })),
  normalizer: { type: "BertNormalizer", clean_text: true, handle_chinese_chars: true, strip_accents: null, lowercase: true },
  pre_tokenizer: { type: "BertPreTokenizer" },
  post_processor: { type: "BertProcessing", cls: ["[CLS]", id("[CLS]")], sep: ["[SEP]", id("[SEP]")] },
  decoder: null,
  model: {
    type: "WordPiece",
    unk_token: "[UNK]",
    continuing_subword_prefix: "##",
    max_input_chars_per_word: 100,
    vocab: Object.fromEntries(TOKENS.map((token, i) => [token, i])),
  },
};

function tokenizer(changes = {}, maxLength = 8, rows = 32) {
  return new Tokenizer(new TextEncoder().encode(JSON.stringify({ ...WHOLE, ...changes })), rows, maxLength, "file");
}

const tokensOf = (text) => tokenizer({}, 64).encode(text).ids.slice(1, -1).map((one) => TOKENS[one]);

test("words become their longest known pieces", () => {
  assert.deepEqual(tokensOf("Films! ab\tAB"), ["film", "##s", "!", "a", "##b", "a", "##b"]);
  assert.deepEqual(tokensOf("a世a"), ["a", "世", "a"]);
  assert.deepEqual(tokensOf("NAÏVE nai\u0308ve"), ["naive", "naive"]);
});

test("what a text may contain beside words does no harm", () => {
  assert.deepEqual(tokensOf(""), []);
  assert.deepEqual(tokensOf("\0fi\u200dlm\ufffd \ud800"), ["film"]); // control characters vanish, even inside a word
  assert.deepEqual(tokensOf("ΣΣ"), ["σ", "##σ"]); // not a final sigma
  assert.deepEqual(tokensOf("a[SEP]a"), ["a", "[SEP]", "a"]);
  assert.deepEqual(tokensOf(`filmx ${"a".repeat(101)}`), ["[UNK]", "[UNK]"]);
});

test("a long text is cut off, and of a pair the longer text first", () => {
  const { ids, truncated } = tokenizer().encode("a a a a a a a");
  assert.deepEqual([ids.length, truncated], [8, true]);
  assert.equal(tokenizer().encode("a a a a a a").truncated, false);
  assert.deepEqual(tokenizer().encodePair("a", "film film film film film").tokenTypes, [0, 0, 0, 1, 1, 1, 1, 1]);
  assert.deepEqual(tokenizer().encodePair("a a a a", "a a a").tokenTypes, [0, 0, 0, 0, 0, 1, 1, 1].slice(0, 8));
});

test("a tokenizer that is not BERT's or does not fit the model is refused", () => {
  for (const [changes, message] of [
    [{ model: { type: "BPE" } }, /^file: tokenizer: model is 'BPE', must be of the type WordPiece; use a plain BERT/],
    [{ normalizer: null }, /tokenizer: normalizer is None, must be of the type BertNormalizer/],
    [{ post_processor: { type: "ByteLevel" } }, /tokenizer: post_processor is 'ByteLevel'/],
    [{ added_tokens: [{ id: 4, content: "a", ...OPTIONS, normalized: true }] }, /added token "a" has options/],
    [{ added_tokens: [{ id: 20, content: "x", ...OPTIONS }] }, /tokenizer: added_tokens\[0\].id is 20, must be 13;/],
  ]) {
    assert.throws(() => tokenizer(changes), { name: "ModelFileError", message });
  }
  assert.throws(() => tokenizer({}, 8, 5), { message: /model.vocab is an object of 13, must be an object of 1 to 5/ });
  assert.throws(() => tokenizer({}, 2), { message: /adds 2 special tokens, the longest input has 2/ });
});
