// The config of a packed model, and the name, type, shape and offset of every tensor, which follow from it.
// docs/packed-format.md, sections 3 and 4, is the specification.
import { byCodePoint, isEqual, Json, JsonObject, ModelFileError, repr, reprTuple } from "./json.js";

export const LIMITS: Record<string, bigint> = {
  layers: 48n,
  hidden: 4096n,
  heads: 256n,
  head_size: 64n,
  intermediate: 16384n,
  vocabulary: 1048576n,
  positions: 8192n,
  token_types: 64n,
  labels: 65536n,
};
const MOST_INNER = 4096n;
export const SITES = [
  "attention_input", "query", "key", "value", "context", "ffn_input", "ffn_hidden", "pooler_input",
];
const OTHERS = ["norm_eps", "thresholds", "score_thresholds", "ffn_levels"];
const OF_VERSION_2 = ["activation_bits", "attention_bits"];

/** The shape of a packed model. */
export interface Config {
  layers: number;
  hidden: number;
  heads: number;
  head_size: number;
  intermediate: number;
  vocabulary: number;
  positions: number;
  token_types: number;
  labels: number;
  norm_eps: number;
  thresholds: string[];
  score_thresholds: boolean;
  ffn_levels: string;
  activation_bits: number;
  attention_bits: number;
}

export interface TensorSpec {
  name: string;
  dtype: "U64" | "F32" | "I32" | "U8";
  shape: bigint[];
  columns: number; // bits of a row of words, else 0
  offset: bigint; // from the start of the data section
  bytes: bigint;
}

const ITEM_BYTES = { U64: 8n, F32: 4n, I32: 4n, U8: 1n };

export function requireFields(what: string, found: Iterable<string>, known: readonly string[]): void {
  const names = new Set(found);
  const missing = known.filter((name) => !names.has(name)).sort(byCodePoint);
  const unknown = [...names].filter((name) => !known.includes(name)).sort(byCodePoint);
  if (missing.length > 0 || unknown.length > 0) {
    throw new ModelFileError(`${what}: missing fields ${repr(missing)}, unknown fields ${repr(unknown)}`);
  }
}

/** Checks the fields of a config; a message says which one is wrong. */
export function readConfig(values: JsonObject): Config {
  const fail = (message: string): never => {
    throw new ModelFileError(`config: ${message}`);
  };
  const known = [...Object.keys(LIMITS), ...OTHERS];
  const hasBits = OF_VERSION_2.some((name) => values.has(name));
  requireFields("config", values.keys(), hasBits ? [...known, ...OF_VERSION_2] : known);
  for (const [name, most] of Object.entries(LIMITS)) {
    const value = values.get(name)!;
    if (typeof value !== "bigint" || value < 1n || value > most) {
      fail(`${name} is ${repr(value)}, must be a whole number from 1 to ${most}`);
    }
  }
  const heads = values.get("heads") as bigint;
  const size = values.get("head_size") as bigint;
  if (heads * size > MOST_INNER) {
    fail(`${heads} heads of ${size} make ${heads * size} channels, at most ${MOST_INNER} fit`);
  }
  const eps = values.get("norm_eps")!;
  if (typeof eps !== "number" || !(eps > 0 && eps <= 1)) {
    fail(`norm_eps is ${repr(eps)}, must be a number above 0 and at most 1`);
  }
  const sites = values.get("thresholds")!;
  if (!Array.isArray(sites) || !isEqual(sites, SITES.filter((site) => sites.includes(site)))) {
    const shown = Array.isArray(sites) ? reprTuple(sites) : repr(sites);
    fail(`thresholds is ${shown}, must list some of ${SITES.join(", ")}, each once, in this order`);
  }
  const scores = values.get("score_thresholds")!;
  if (typeof scores !== "boolean") fail(`score_thresholds is ${repr(scores)}, must be true or false`);
  const ffn = values.get("ffn_levels")!;
  if (ffn !== "sign" && ffn !== "bool") fail(`ffn_levels is ${repr(ffn)}, must be one of ['sign', 'bool']`);
  const bits = OF_VERSION_2.map((name) => values.get(name) ?? 1n);
  if (!isEqual(bits, [1n, 1n]) && !bits.every((one) => one === 2n || one === 4n)) {
    fail(`activation_bits, attention_bits are ${reprTuple(bits)}, both must be 1, or each 2 or 4`);
  }
  const hasLevels = Number(bits[0]) > 1;
  if (hasLevels && ((sites as Json[]).length > 0 || scores === true || ffn !== "bool")) {
    const parts = `(${reprTuple(sites as Json[])}, ${repr(scores)}, ${repr(ffn)})`;
    const found = `${parts} with activation_bits ${bits[0]}, must be empty, false and 'bool'`;
    fail(`thresholds, score_thresholds and ffn_levels are ${found}`);
  }
  const parts = { norm_eps: eps, thresholds: sites, score_thresholds: scores, ffn_levels: ffn };
  const config: Record<string, unknown> = { ...parts };
  for (const name of Object.keys(LIMITS)) config[name] = Number(values.get(name));
  OF_VERSION_2.forEach((name, i) => (config[name] = Number(bits[i])));
  return config as unknown as Config;
}

/** The plain values of the file. */
export function configValues(config: Config): JsonObject {
  const values: JsonObject = new Map();
  for (const name of Object.keys(LIMITS)) values.set(name, BigInt(config[name as "layers"]));
  values.set("norm_eps", config.norm_eps);
  values.set("thresholds", config.thresholds);
  values.set("score_thresholds", config.score_thresholds);
  values.set("ffn_levels", config.ffn_levels);
  if (config.activation_bits > 1) {
    for (const name of OF_VERSION_2) values.set(name, BigInt(config[name as "activation_bits"]));
  }
  return values;
}

// The 32-bit numbers of a layer in the order of the file: part, its channels, its tensors.
const LAYER_NUMBERS: [string, string, string[]][] = [
  ["attention_input", "hidden", ["threshold"]],
  ["query", "inner", ["scale", "bias", "threshold"]],
  ["key", "inner", ["scale", "bias", "threshold"]],
  ["value", "inner", ["scale", "bias", "threshold"]],
  ["context", "inner", ["threshold"]],
  ["attention_output", "hidden", ["scale", "bias"]],
  ["attention_norm", "hidden", ["weight", "bias"]],
  ["ffn_input", "hidden", ["threshold"]],
  ["intermediate", "intermediate", ["scale", "bias"]],
  ["ffn_hidden", "intermediate", ["threshold"]],
  ["output", "hidden", ["scale", "bias"]],
  ["output_norm", "hidden", ["weight", "bias"]],
];

/** Every tensor of a file, in its order. */
export function tensorSpecs(config: Config, tokenizerBytes: bigint): TensorSpec[] {
  const { hidden, intermediate } = config;
  const inner = config.heads * config.head_size;
  const sizes: Record<string, number> = { hidden, inner, intermediate };
  const specs: TensorSpec[] = [];
  let offset = 0n;
  const add = (name: string, dtype: TensorSpec["dtype"], shape: (number | bigint)[], columns = 0): void => {
    const whole = shape.map(BigInt);
    const bytes = whole.reduce((product, one) => product * one, ITEM_BYTES[dtype]);
    specs.push({ name, dtype, shape: whole, columns, offset, bytes });
    offset += bytes;
  };
  const bits = (name: string, rows: number, columns: number): void =>
    add(`${name}.bits`, "U64", [rows, Math.ceil(columns / 64)], columns);
  const site = (part: string, name: string, channels: number): void => {
    if (config.activation_bits > 1) {
      add(`${name}.edge`, "F32", [channels]);
      add(`${name}.rate`, "F32", [1]);
    } else if (config.thresholds.includes(part)) {
      add(`${name}.threshold`, "F32", [channels]);
    }
  };
  bits("embeddings.word", config.vocabulary, hidden);
  for (let layer = 0; layer < config.layers; ++layer) {
    const at = `layers.${layer}`;
    for (const part of ["query", "key", "value"]) bits(`${at}.${part}`, inner, hidden);
    bits(`${at}.attention_output`, hidden, inner);
    bits(`${at}.intermediate`, intermediate, hidden);
    bits(`${at}.output`, hidden, intermediate);
  }
  bits("pooler", hidden, hidden);
  add("embeddings.word.scale", "F32", [config.vocabulary]);
  add("embeddings.token_type", "F32", [config.token_types, hidden]);
  add("embeddings.position", "F32", [config.positions, hidden]);
  add("embeddings.norm.weight", "F32", [hidden]);
  add("embeddings.norm.bias", "F32", [hidden]);
  for (let layer = 0; layer < config.layers; ++layer) {
    for (const [part, channels, tensors] of LAYER_NUMBERS) {
      const at = `layers.${layer}.${part}`;
      for (const tensor of tensors) {
        if (tensor === "threshold") site(part, at, sizes[channels]!);
        else add(`${at}.${tensor}`, "F32", [sizes[channels]!]);
      }
      if (part === "value" && config.score_thresholds) add(`layers.${layer}.score_threshold`, "I32", [config.heads]);
      if (part === "value" && config.activation_bits > 1) {
        add(`${at}.step`, "F32", [1]);
        const top = 2 ** config.attention_bits - 1;
        add(`layers.${layer}.attention_threshold`, "I32", [config.heads, top]);
      }
    }
  }
  site("pooler_input", "pooler_input", hidden);
  add("pooler.scale", "F32", [hidden]);
  add("pooler.bias", "F32", [hidden]);
  add("classifier.weight", "F32", [config.labels, hidden]);
  add("classifier.bias", "F32", [config.labels]);
  add("tokenizer", "U8", [tokenizerBytes]);
  return specs;
}
