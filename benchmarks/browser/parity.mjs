// Tokens and logits of texts in Node, for parity.py: node parity.mjs MODEL TEXTS.json > ANSWERS.json
import { readFile } from "node:fs/promises";

import { load } from "../../js/dist/index.js";
import { answersOf } from "./answers.mjs";

const [model, texts] = process.argv.slice(2);
const classifier = await load(model);
process.stdout.write(JSON.stringify(answersOf(classifier, JSON.parse(await readFile(texts, "utf8")))));
