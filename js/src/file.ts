// Reads a packed file from memory, or explains why it cannot: the checks of docs/packed-format.md, section 6, in their
// order and with the messages of the Python reader.
import { checkBounds } from "./bounds.js";
import {
  DAMAGED, isEqual, Json, JsonObject, ModelFileError, mostCommon, parseJson, parseObject, repr, reprBytes, reprFloat,
  writeJson,
} from "./json.js";
import { checkTokenizerSize } from "./rules.js";
import { Config, configValues, readConfig, requireFields, TensorSpec, tensorSpecs } from "./schema.js";

const VERSION = 2;
const MOST_FILE_BYTES = 10 ** 9;
const MOST_HEADER_BYTES = 2 ** 20;
const MOST_ABOUT_BYTES = 2 ** 16;
const LONGEST_MESSAGE = 600;
const PACK_AGAIN = "pack the model again";
const ZERO_DIGEST = "0".repeat(64);
const FIELDS = ["format", "version", "config", "labels", "max_length", "temperature", "about", "sha256"];
const WHOLE_NUMBER = /^[1-9][0-9]{0,8}$/;
const PICKLE = "a Python pickle, which could run any code; use a file made by bibert pack";
const FOREIGN: [string, string][] = [
  ["PK\x03\x04", "a zip archive, perhaps a torch checkpoint (.bin, .pt); use a file made by bibert pack"],
  ...[2, 3, 4, 5].map((protocol): [string, string] => [`\x80${String.fromCharCode(protocol)}`, PICKLE]),
  ["version ", "a Git LFS pointer, not the file itself; fetch it with git lfs pull"],
  ["GGUF", "a GGUF model; use a file made by bibert pack"],
  ["<", "a web page or XML, not a model; check the address it was downloaded from"],
  ["{", "plain JSON, perhaps a config.json; use a file made by bibert pack"],
];

/** A packed model in memory; it has passed all checks. */
export interface PackedModel {
  config: Config;
  labels: string[];
  maxLength: number;
  temperature: number;
  about: JsonObject;
  weights: Uint8Array; // the data section without the tokenizer
  tokenizer: Uint8Array; // the contents of tokenizer.json
}

type View = Uint8Array | Float32Array | Int32Array;

interface Description {
  config: Config;
  labels: string[];
  maxLength: number;
  temperature: number;
  about: JsonObject;
}

/** Reads a packed file; `name` starts the message if that fails. */
export async function readPacked(bytes: Uint8Array, name: string): Promise<PackedModel> {
  try {
    return await read(bytes);
  } catch (error) {
    if (!(error instanceof ModelFileError)) throw error;
    const half = LONGEST_MESSAGE / 2;
    const message = [...error.message];
    const short = message.length <= LONGEST_MESSAGE ? error.message
      : `${message.slice(0, half).join("")} ... ${message.slice(-half).join("")}`;
    throw new ModelFileError(`${name}: ${short}`);
  }
}

async function read(bytes: Uint8Array): Promise<PackedModel> {
  const header = readHeader(bytes);
  const { description, specs, digest } = decode(header);
  const start = 8 + header.length;
  const last = specs.at(-1)!;
  const expected = start + Number(last.offset + last.bytes);
  if (bytes.length !== expected) {
    const missing = expected - bytes.length;
    const what = missing > 0 ? `${missing} are missing` : `${-missing} too many`;
    throw new ModelFileError(`has ${bytes.length} bytes of ${expected}, ${what}; ${DAMAGED}`);
  }
  checkTokenizerSize(Number(last.bytes), description.config.vocabulary);
  // Aligned for views of 32-bit numbers, and private.
  const data = bytes.slice(start);
  const found = await sha256(encode(description, last.bytes, ZERO_DIGEST), data);
  if (found !== digest) {
    throw new ModelFileError(`the contents have SHA-256 ${found}, the header says ${digest}; ${DAMAGED}`);
  }
  withRemedy(() => {
    const views = new Map(specs.map((spec) => [spec.name, viewOf(spec, data)]));
    for (const spec of specs) checkValues(spec, views.get(spec.name)!, description.config);
    const view = (name: string): any => views.get(name);
    checkBounds(description.config, view, view);
  });
  const weights = Number(last.offset);
  return { ...description, weights: data.subarray(0, weights), tokenizer: data.subarray(weights) };
}

function withRemedy<T>(work: () => T, remedy = PACK_AGAIN): T {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof ModelFileError)) throw error;
    throw new ModelFileError(`${error.message}; ${remedy}`);
  }
}

function readHeader(bytes: Uint8Array): Uint8Array {
  if (bytes.length > MOST_FILE_BYTES) {
    const most = `a packed model has at most ${MOST_FILE_BYTES}`;
    throw new ModelFileError(`has ${bytes.length} bytes, ${most}; use a smaller model`);
  }
  if (bytes.length < 8) {
    throw new ModelFileError(`has ${bytes.length} bytes, the length of its header alone takes 8; ${DAMAGED}`);
  }
  const length = new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true);
  if (length > BigInt(MOST_HEADER_BYTES)) {
    const first = String.fromCharCode(...bytes.subarray(0, 8));
    for (const [start, what] of FOREIGN) if (first.startsWith(start)) throw new ModelFileError(`is ${what}`);
    const sizes = `its header would have ${length} bytes, at most ${MOST_HEADER_BYTES} may`;
    throw new ModelFileError(`is not a file made by bibert pack: ${sizes}`);
  }
  const end = 8 + Number(length);
  if (end > bytes.length) {
    throw new ModelFileError(`ends in its header: ${bytes.length} bytes of at least ${end}; ${DAMAGED}`);
  }
  return bytes.subarray(8, end);
}

function decode(raw: Uint8Array): { description: Description; specs: TensorSpec[]; digest: string } {
  const bad = invalidUtf8(raw);
  if (bad >= 0) throw new ModelFileError(`the header is not UTF-8 at byte ${bad} of ${raw.length}; ${DAMAGED}`);
  const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(raw);
  const values = withRemedy(() => parseObject(text, "the header"), DAMAGED);
  const metadata = values.get("__metadata__") ?? null;
  values.delete("__metadata__");
  checkVersion(metadata);
  return withRemedy(() => {
    const description = readMetadata(metadata as JsonObject);
    const specs = readTable(values, description.config);
    const digest = (metadata as JsonObject).get("sha256") as string;
    checkSpelling(raw, encode(description, specs.at(-1)!.bytes, digest).subarray(8));
    return { description, specs, digest };
  });
}

/** The first byte that is not UTF-8, or -1. */
function invalidUtf8(bytes: Uint8Array): number {
  for (let at = 0; at < bytes.length; ) {
    const lead = bytes[at]!;
    const more = lead < 0x80 ? 0 : lead >= 0xc2 && lead < 0xe0 ? 1 : lead >= 0xe0 && lead < 0xf0 ? 2
      : lead >= 0xf0 && lead < 0xf5 ? 3 : -1;
    if (more < 0) return at;
    const lowest = lead === 0xe0 ? 0xa0 : lead === 0xf0 ? 0x90 : 0x80;
    const highest = lead === 0xed ? 0x9f : lead === 0xf4 ? 0x8f : 0xbf;
    for (let i = 1; i <= more; ++i) {
      const byte = bytes[at + i] ?? 0;
      if (byte < (i === 1 ? lowest : 0x80) || byte > (i === 1 ? highest : 0xbf)) return at;
    }
    at += 1 + more;
  }
  return -1;
}

// Runs first, because nothing else is known about other formats and later versions.
function checkVersion(metadata: Json): void {
  if (!(metadata instanceof Map) || metadata.get("format") !== "bibert") {
    const shown = [...repr(metadata)].slice(0, 60).join("");
    const found = `__metadata__ is ${shown}, must have the format 'bibert'`;
    throw new ModelFileError(`is a safetensors file but not a packed model: ${found}; create one with bibert pack`);
  }
  const version = metadata.get("version");
  if (typeof version !== "string" || !WHOLE_NUMBER.test(version)) {
    const must = "must be a string of digits from '1' up";
    throw new ModelFileError(`metadata: version is ${repr(version)}, ${must}; ${DAMAGED}`);
  }
  if (Number(version) > VERSION) {
    const versions = `the file has version ${version}, this bibert reads up to ${VERSION}`;
    throw new ModelFileError(`made by a newer bibert: ${versions}; npm install bibert@latest`);
  }
}

function readMetadata(metadata: JsonObject): Description {
  requireFields("metadata", ["temperature", ...metadata.keys()], FIELDS);
  for (const [name, value] of metadata) {
    if (typeof value !== "string") throw new ModelFileError(`metadata: ${name} is ${repr(value)}, must be a string`);
  }
  const field = (name: string, otherwise = ""): string => (metadata.get(name) as string | undefined) ?? otherwise;
  if (!/^[0-9a-f]{64}$/.test(field("sha256"))) {
    throw new ModelFileError(`metadata: sha256 is ${repr(field("sha256"))}, must be 64 digits 0-9, a-f`);
  }
  const config = readConfig(parseObject(field("config"), "config"));
  const labels = parseJson(field("labels"), "labels");
  if (!Array.isArray(labels)) throw new ModelFileError(`labels is ${repr(labels)}, must be a list of names`);
  if (!WHOLE_NUMBER.test(field("max_length"))) {
    throw new ModelFileError(`max_length is ${repr(field("max_length"))}, must be a string of digits from '1' up`);
  }
  const about = parseObject(field("about"), "about");
  const temperature = parseJson(field("temperature", "1.0"), "temperature");
  checkLabels(labels, config.labels);
  const maxLength = Number(field("max_length"));
  if (maxLength > config.positions) {
    const most = `1 to ${config.positions}, the positions of the model`;
    throw new ModelFileError(`max_length is ${maxLength}, must be ${most}`);
  }
  const [least, greatest] = config.labels > 1 ? [0.05, 20] : [1, 1]; // a regression has no probabilities
  if (typeof temperature !== "number" || !(temperature >= least! && temperature <= greatest!)) {
    const allowed = `a float from ${reprFloat(least!)} to ${reprFloat(greatest!)} for ${config.labels} labels`;
    throw new ModelFileError(`temperature is ${repr(temperature)}, must be ${allowed}`);
  }
  checkAbout(writeJson(about));
  return { config, labels: labels as string[], maxLength, temperature, about };
}

function checkLabels(labels: Json[], count: number): void {
  if (labels.length !== count) {
    throw new ModelFileError(`labels has ${labels.length} names, the classifier has ${count} outputs`);
  }
  labels.forEach((label, place) => {
    if (typeof label !== "string" || label === "") {
      throw new ModelFileError(`labels: number ${place} is ${repr(label)}, must be a name`);
    }
    if (/[\p{Cc}\p{Cs}]/u.test(label)) {
      const problem = "has control characters or half a character";
      throw new ModelFileError(`labels: number ${place} is ${repr(label)}, ${problem}`);
    }
  });
  const [name, times] = mostCommon(labels as string[]);
  if (times > 1) throw new ModelFileError(`labels: ${repr(name)} is there ${times} times, names must differ`);
}

function checkAbout(text: string): void {
  const half = [...text].findIndex((character) => /\p{Cs}/u.test(character));
  if (half >= 0) {
    const character = repr([...text][half]!);
    const problem = `'utf-8' codec can't encode character ${character} in position ${half}: surrogates not allowed`;
    throw new ModelFileError(`about: cannot be written as JSON: ${problem}; use plain values`);
  }
  const size = new TextEncoder().encode(text).length;
  if (size > MOST_ABOUT_BYTES) {
    throw new ModelFileError(`about: has ${size} bytes, at most ${MOST_ABOUT_BYTES} are allowed; shorten it`);
  }
}

function entryOf(spec: TensorSpec): JsonObject {
  const offsets = [spec.offset, spec.offset + spec.bytes];
  return new Map<string, Json>([["dtype", spec.dtype], ["shape", spec.shape], ["data_offsets", offsets]]);
}

function readTable(entries: JsonObject, config: Config): TensorSpec[] {
  const tokenizer = entries.get("tokenizer"); // its size is the only one that does not follow from the config
  const shape = tokenizer instanceof Map ? tokenizer.get("shape") : undefined;
  const size = Array.isArray(shape) && shape.length === 1 ? shape[0] : undefined;
  if ((typeof size !== "bigint" && typeof size !== "boolean") || BigInt(size) < 1n) {
    throw new ModelFileError(`tensor 'tokenizer' is ${repr(tokenizer)}, must have a shape of 1 or more bytes`);
  }
  const specs = tensorSpecs(config, BigInt(size));
  const expected = new Map(specs.map((spec) => [spec.name, entryOf(spec)]));
  const shown = (value: Json | undefined): string => (typeof value === "string" ? value : repr(value));
  for (const name of [...expected.keys(), ...entries.keys()]) {
    const found = entries.has(name) ? entries.get(name) : "absent";
    const needed = expected.get(name) ?? "absent";
    if (!isEqual(found, needed)) {
      throw new ModelFileError(`tensor ${repr(name)} is ${shown(found)}, must be ${shown(needed)}`);
    }
  }
  return specs;
}

/** Everything before the data section. */
function encode(description: Description, tokenizerBytes: bigint, digest: string): Uint8Array {
  const { config, temperature } = description;
  const metadata = new Map<string, Json>([
    ["format", "bibert"],
    ["version", config.activation_bits > 1 ? String(VERSION) : "1"],
    ["config", writeJson(configValues(config))],
    ["labels", writeJson(description.labels)],
    ["max_length", String(description.maxLength)],
    ["temperature", writeJson(temperature)],
    ["about", writeJson(description.about)],
    ["sha256", digest],
  ]);
  if (temperature === 1) metadata.delete("temperature");
  const table = tensorSpecs(config, tokenizerBytes).map((spec): [string, Json] => [spec.name, entryOf(spec)]);
  const whole = new Map<string, Json>([["__metadata__", metadata], ...table]);
  const text = new TextEncoder().encode(writeJson(whole, false));
  const length = Math.ceil(text.length / 8) * 8;
  const out = new Uint8Array(8 + length).fill(32, 8 + text.length);
  out.set(text, 8);
  new DataView(out.buffer).setBigUint64(0, BigInt(length), true);
  return out;
}

function checkSpelling(found: Uint8Array, expected: Uint8Array): void {
  let at = 0;
  while (at < found.length && at < expected.length && found[at] === expected[at]) ++at;
  if (at === found.length && at === expected.length) return;
  const show = (bytes: Uint8Array): string => reprBytes(bytes.subarray(at, at + 8));
  const difference = `from byte ${at} on it is ${show(found)}, must be ${show(expected)}`;
  throw new ModelFileError(`the header does not have the one spelling that the format allows: ${difference}`);
}

async function sha256(front: Uint8Array, data: Uint8Array): Promise<string> {
  if (globalThis.crypto?.subtle === undefined) {
    throw new ModelFileError("cannot be checked without crypto.subtle; serve the page over https or from localhost");
  }
  const whole = new Uint8Array(front.length + data.length);
  whole.set(front);
  whole.set(data, front.length);
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", whole));
  return [...digest].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The numbers of a tensor; the bytes of one of bits. */
function viewOf(spec: TensorSpec, data: Uint8Array): View {
  const [offset, bytes] = [Number(spec.offset), Number(spec.bytes)];
  if (spec.dtype !== "F32" && spec.dtype !== "I32") return data.subarray(offset, offset + bytes);
  const place = [data.buffer as ArrayBuffer, data.byteOffset + offset, bytes / 4] as const;
  return spec.dtype === "F32" ? new Float32Array(...place) : new Int32Array(...place);
}

// The values, which neither the table of tensors nor the digest can check.
function checkValues(spec: TensorSpec, view: View, config: Config): void {
  if (!(view instanceof Uint8Array)) checkNumbers(spec, view, config.head_size);
  else if (spec.dtype === "U64" && hasStrayBits(view, spec)) {
    throw new ModelFileError(`tensor ${repr(spec.name)}: a bit is set after channel ${spec.columns} of a row`);
  }
}

function hasStrayBits(bytes: Uint8Array, spec: TensorSpec): boolean {
  const used = spec.columns % 64;
  const rowBytes = Number(spec.shape[1]!) * 8;
  if (used === 0) return false;
  for (let end = rowBytes; end <= bytes.length; end += rowBytes) {
    let at = end - 8 + (used >> 3);
    if (bytes[at]! >> used % 8 !== 0) return true;
    while (++at < end) if (bytes[at] !== 0) return true;
  }
  return false;
}

function checkNumbers(spec: TensorSpec, values: Float32Array | Int32Array, headSize: number): void {
  const fail = (message: string): never => {
    throw new ModelFileError(`tensor ${repr(spec.name)}: ${message}`);
  };
  const isFloat = values instanceof Float32Array;
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (!(value >= low)) low = value;
    if (!(value <= high)) high = value;
    if (Number.isNaN(value)) break;
  }
  if (Number.isNaN(low)) high = low;
  const show = (value: number): string => (isFloat ? reprFloat(value) : String(value));
  const range = `holds values from ${show(low)} to ${show(high)}`;
  if (!Number.isFinite(low) || !Number.isFinite(high)) fail(`${range}, must be finite`);
  if (spec.name.endsWith(".scale")) {
    const negative = values.find((value) => value < 0 || Object.is(value, -0)); // the engine looks at the sign bit
    if (negative !== undefined) fail(`holds ${reprFloat32(negative)}, a scale must not have a minus sign`);
  }
  if (/\.(rate|step)$/.test(spec.name) && !(low > 0)) fail(`holds ${show(low)}, must be above 0`);
  if (spec.name.endsWith(".attention_threshold")) {
    const columns = Number(spec.shape[1]!);
    const rises = values.some((value: number, i: number) => i % columns !== 0 && value > values[i - 1]!);
    if (low < 0 || rises) fail(`${range}, must neither be negative nor rise`);
  }
  const most = headSize + 1;
  if (spec.name.endsWith(".score_threshold") && Math.max(-low, high) > most) {
    fail(`${range}, must be from ${-most} to ${most}`);
  }
}

/** The shortest digits that give the same float32. */
function reprFloat32(value: number): string {
  for (let digits = 1; digits < 9; ++digits) {
    const short = Number(value.toPrecision(digits));
    if (Math.fround(short) === value) return reprFloat(Object.is(value, -0) ? -0 : short);
  }
  return reprFloat(Number(value.toPrecision(9)));
}
