// Bad files and tokenizers: those of the Python tests, each refused with Python's message, and good files cut off or
// with one bit flipped. The tests in tests/packed write the list of files that BIBERT_FILES names, and run this.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import { readPacked } from "../dist/file.js";
import { ModelFileError } from "../dist/json.js";
import { Tokenizer } from "../dist/tokenizer.js";

const list = process.env.BIBERT_FILES;
const skip = list === undefined && "pytest tests/packed runs it with a list of files";
const { good, bad, tokenizers } = skip ? {} : JSON.parse(await readFile(list, "utf8"));
const FLIPS = 1000;

async function refusal(bytes) {
  try {
    await readPacked(bytes, "file");
  } catch (error) {
    assert(error instanceof ModelFileError, error);
    assert(error.message.startsWith("file: "));
    return error.message.slice("file: ".length);
  }
  return undefined;
}

test("each bad file is refused with the message of the Python reader", { skip }, async () => {
  assert(bad.length + tokenizers.length > 0);
  const different = [];
  for (const { file, message } of bad) {
    const found = await refusal(new Uint8Array(await readFile(file)));
    const expected = message.replace("pip install --upgrade bibert", "npm install bibert@latest");
    if (found !== expected) different.push({ file, found, expected });
  }
  assert.deepEqual(different, []);
});

test("each bad tokenizer is refused with the message of the Python reader", { skip }, async () => {
  const different = [];
  for (const { file, rows, message } of tokenizers) {
    const raw = new Uint8Array(await readFile(file));
    let found;
    try {
      new Tokenizer(raw, rows, 8, "file");
    } catch (error) {
      assert(error instanceof ModelFileError, error);
      found = error.message;
    }
    if (found !== `file: ${message}`) different.push({ found, message });
  }
  assert.deepEqual(different, []);
});

test("a good file that is cut off, extended or changed in one bit is refused", { skip }, async () => {
  for (const file of good) {
    const bytes = new Uint8Array(await readFile(file));
    assert.equal(await refusal(bytes), undefined);
    for (let size = 0; size < bytes.length; size += 7) assert(await refusal(bytes.subarray(0, size)), `size ${size}`);
    assert(await refusal(new Uint8Array([...bytes, 0])));
    for (let i = 0; i < FLIPS; ++i) {
      const bit = (i * 2654435761) % (8 * bytes.length); // all over the file, and the same on every run
      const flipped = bytes.slice();
      flipped[bit >> 3] ^= 1 << bit % 8;
      assert(await refusal(flipped), `bit ${bit}`);
    }
  }
});
