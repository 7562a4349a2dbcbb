// Text classification with a packed model: load(file) and predict(texts).
import { compile, Encoded, Engine, EngineError, readBytes, WasmSource } from "./engine.js";
import { PackedModel, readPacked } from "./file.js";
import { Tokenizer } from "./tokenizer.js";

export { EngineError } from "./engine.js";
export { ModelFileError } from "./json.js";
export type { Encoded, WasmSource } from "./engine.js";

const BLOCK = 32; // texts per call of the engine, which bounds its memory

/** A text, or a text and its pair. */
export type Text = string | readonly [string, string];

/** The best label of a text and its probability; for a model with one label, a regression, its value. */
export interface Prediction {
  label: string;
  score: number;
}

export interface LoadOptions {
  /** The compiled module or its address, if a bundler or a server keeps bibert.wasm elsewhere. */
  wasm?: WasmSource;
}

/** The attention weights of a text: [layer][head][query][key], whole numbers from 0 to `levels` - 1. */
export interface Attention {
  tokens: string[];
  layers: number;
  heads: number;
  levels: number;
  weights: Uint8Array;
}

/** Loads a packed model: the address or (in Node) the path of a .bibert file, or its bytes. */
export async function load(source: string | URL | BufferSource, options: LoadOptions = {}): Promise<Classifier> {
  const name = typeof source === "string" || source instanceof URL ? String(source) : "model";
  const [bytes, module] = await Promise.all([readBytes(source), compile(options.wasm)]);
  const packed = await readPacked(bytes, name);
  const { vocabulary, token_types: types } = packed.config;
  const tokenizer = new Tokenizer(packed.tokenizer, vocabulary, packed.maxLength, name, types);
  return new Classifier(packed, tokenizer, await Engine.create(module, packed.config, packed.weights));
}

/** A packed model with its tokenizer and its labels. */
export class Classifier {
  readonly labels: readonly string[];
  readonly maxLength: number;
  private readonly temperature: number;

  /** Use `load`. */
  constructor(
    packed: PackedModel,
    private readonly tokenizer: Tokenizer,
    private readonly engine: Engine,
  ) {
    this.labels = packed.labels;
    this.maxLength = packed.maxLength;
    this.temperature = packed.temperature;
  }

  /** The instruction set the engine runs on. */
  get isa(): string {
    return this.engine.isa;
  }

  /** The best label of each text. A text alone is allowed too. */
  predict(texts: string | readonly Text[]): Prediction[] {
    return this.logits(texts).map((logits) => {
      if (this.labels.length === 1) return { label: this.labels[0]!, score: logits[0]! };
      const scores = softmax(logits, this.temperature);
      const best = scores.indexOf(Math.max(...scores));
      return { label: this.labels[best]!, score: scores[best]! };
    });
  }

  /** The probabilities of all labels of each text. */
  probabilities(texts: string | readonly Text[]): number[][] {
    if (this.labels.length === 1) {
      throw new EngineError("the model is a regression (1 label), which has no probabilities; use predict or logits");
    }
    return this.logits(texts).map((logits) => softmax(logits, this.temperature));
  }

  /** The raw outputs of the network: the same bits as in Python. */
  logits(texts: string | readonly Text[]): Float32Array[] {
    const rows = isText(texts) ? [texts] : texts;
    const out: Float32Array[] = [];
    for (let first = 0; first < rows.length; first += BLOCK) {
      out.push(...this.engine.logits(rows.slice(first, first + BLOCK).map((row, i) => this.encode(row, first + i))));
    }
    return out;
  }

  /** What each token attends to, in every layer and head. Takes longer than `predict`. */
  attention(text: Text): Attention {
    const input = this.encode(text);
    const { layers, heads, attention_bits: bits } = this.engine.config;
    const tokens = this.tokenizer.tokensOf(input.ids);
    return { tokens, layers, heads, levels: 2 ** bits, weights: this.engine.attention(input) };
  }

  /** The tokens of a text, as the engine gets them; `number` is its row, for messages. */
  encode(text: Text, number = 0): Encoded {
    const row: unknown = text;
    if (typeof row === "string") return this.tokenizer.encode(row);
    if (Array.isArray(row) && row.length === 2 && row.every((one) => typeof one === "string")) {
      return this.tokenizer.encodePair(row[0] as string, row[1] as string);
    }
    throw new EngineError(`row ${number}: is a ${typeof row}, must be a text or a pair of texts`);
  }
}

// A list of two texts is two texts, not a pair: only predict([[text, pair]]) has pairs.
function isText(texts: string | readonly Text[]): texts is string {
  return typeof texts === "string";
}

function softmax(logits: Float32Array, temperature: number): number[] {
  const greatest = Math.max(...logits);
  const raised = Array.from(logits, (logit) => Math.exp((logit - greatest) / temperature));
  const sum = raised.reduce((total, one) => total + one, 0);
  return raised.map((one) => one / sum);
}
