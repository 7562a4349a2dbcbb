// Loading and predicting with a model that ships with the Python package.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { load } from "../dist/index.js";

const skip = !existsSync(new URL("../bibert.wasm", import.meta.url)) && "needs bibert.wasm, from make wasm";
const FILE = new URL("../../src/bibert/models/sst2.bibert", import.meta.url);
const TEXTS = ["a gorgeous, witty film", "dull and lifeless"];

test("a model is loaded from a path, an address or bytes, and labels texts", { skip }, async () => {
  const bytes = await readFile(FILE);
  for (const source of [fileURLToPath(FILE), FILE, bytes, new Uint8Array(bytes).buffer]) {
    const classifier = await load(source);
    assert.deepEqual(classifier.predict(TEXTS).map(({ label }) => label), ["positive", "negative"]);
  }
});

test("scores are probabilities, and a text alone has the bits it has in a batch", { skip }, async () => {
  const classifier = await load(FILE);
  const many = Array.from({ length: 70 }, (_, i) => TEXTS[i % 2]);
  const [good, bad] = TEXTS.map((text) => classifier.logits(text)[0]);
  classifier.logits(many).forEach((logits, i) => assert.deepEqual(logits, i % 2 === 0 ? good : bad));
  for (const row of classifier.probabilities(TEXTS)) assert(Math.abs(row[0] + row[1] - 1) < 1e-12);
  assert.equal(classifier.predict([["a film", "a gorgeous one"]]).length, 1);
  assert.deepEqual(classifier.predict([]), []);
});

test("errors say what is wrong", { skip }, async () => {
  await assert.rejects(load(new Uint8Array(3)), { name: "ModelFileError", message: /^model: has 3 bytes/ });
  await assert.rejects(load("no/such/file"), { name: "ModelFileError", message: /^no\/such\/file: no such file/ });
  const classifier = await load(FILE);
  assert.throws(() => classifier.predict([TEXTS[0], 7]), { name: "EngineError", message: /^row 1: is a number/ });
});
