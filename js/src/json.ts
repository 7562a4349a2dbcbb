// Strict JSON as the format allows it, and the spellings of Python that messages and headers use. Whole numbers are
// bigint and others number, because the one spelling of a header tells 1 from 1.0; objects are Map, in their order.

export type Json = null | boolean | bigint | number | string | Json[] | JsonObject;
export type JsonObject = Map<string, Json>;

export const DAMAGED = "the file is damaged, copy it again";
const MOST_NESTING = 16;
const MOST_DIGITS = 32;
const PYTHON_DIGITS = 4300;

/** A packed file cannot be read; the message says why and what helps. */
export class ModelFileError extends Error {
  override name = "ModelFileError";
}

class Parser {
  private at = 0;

  constructor(
    protected readonly text: string,
    protected readonly what: string,
  ) {}

  parse(): Json {
    this.checkNesting();
    const value = this.value(this.skip(0));
    if (this.skip(this.at) < this.text.length) this.fail("Extra data", this.skip(this.at));
    return value;
  }

  // Brackets inside strings do not count; a string that does not end is one token.
  protected checkNesting(): void {
    let depth = 0;
    for (const [token] of this.text.matchAll(/"(?:[^"\\]|\\[^])*"?|[[\]{}]/g)) {
      depth += token === "[" || token === "{" ? 1 : token === "]" || token === "}" ? -1 : 0;
      if (depth > MOST_NESTING) {
        throw new ModelFileError(
          `${this.what}: is nested ${depth} deep or more, at most ${MOST_NESTING} are allowed`,
        );
      }
    }
  }

  protected fail(message: string, at: number): never {
    const shown = `${message} at character ${characters(this.text, at)} of ${characters(this.text)}`;
    throw new ModelFileError(`${this.what}: is not JSON: ${shown}`);
  }

  protected reject(message: string): never {
    throw new ModelFileError(`${this.what}: ${message}`);
  }

  private skip(at: number): number {
    while (" \t\n\r".includes(this.text[at] ?? "x")) ++at;
    return at;
  }

  private value(at: number): Json {
    const { text } = this;
    if (text[at] === '"') return this.string(at);
    if (text[at] === "{") return this.object(at);
    if (text[at] === "[") return this.array(at);
    for (const [word, value] of [["null", null], ["true", true], ["false", false]] as const) {
      if (text.startsWith(word, at)) {
        this.at = at + word.length;
        return value;
      }
    }
    const number = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?/y;
    number.lastIndex = at;
    const found = number.exec(text);
    if (found !== null) {
      this.at = at + found[0].length;
      return found[1] === undefined && found[2] === undefined ? this.whole(found[0]) : this.real(found[0]);
    }
    for (const word of ["NaN", "Infinity", "-Infinity"]) if (text.startsWith(word, at)) return this.constant(word, at);
    return this.fail("Expecting value", at);
  }

  protected whole(digits: string): bigint {
    if (digits.length > MOST_DIGITS) {
      this.reject(`a number has ${digits.length} digits, at most ${MOST_DIGITS} are allowed`);
    }
    return BigInt(digits);
  }

  protected real(digits: string): number {
    if (!Number.isFinite(Number(digits))) this.reject(`the number ${digits} is not finite`);
    return Number(digits);
  }

  private constant(word: string, at: number): number {
    this.at = at + word.length;
    return this.real(word);
  }

  private string(start: number): string {
    const { text } = this;
    const plain = /[^"\\\0-\x1f]*/y;
    let out = "";
    for (let at = start + 1; ; ) {
      plain.lastIndex = at;
      out += plain.exec(text)![0];
      at = plain.lastIndex;
      const c = text[at];
      if (c === undefined) this.fail("Unterminated string starting at", start);
      if (c === '"') {
        this.at = at + 1;
        return out;
      }
      if (c < " ") this.fail("Invalid control character at", at);
      const escape = text[at + 1];
      if (escape === undefined) this.fail("Unterminated string starting at", start);
      const simple = '"\\/bfnrt'.indexOf(escape);
      if (simple >= 0) {
        out += '"\\/\b\f\n\r\t'[simple];
        at += 2;
      } else if (escape === "u") {
        const digits = text.slice(at + 2, at + 6);
        if (!/^[0-9a-fA-F]{4}$/.test(digits)) this.fail("Invalid \\uXXXX escape", at + 1);
        out += String.fromCharCode(parseInt(digits, 16));
        at += 6;
      } else {
        this.fail("Invalid \\escape", at);
      }
    }
  }

  private object(start: number): JsonObject {
    const { text } = this;
    const pairs: [string, Json][] = [];
    let at = this.skip(start + 1);
    if (text[at] === "}") this.at = at + 1;
    else {
      for (;;) {
        if (text[at] !== '"') this.fail("Expecting property name enclosed in double quotes", at);
        const name = this.string(at);
        at = this.skip(this.at);
        if (text[at] !== ":") this.fail("Expecting ':' delimiter", at);
        pairs.push([name, this.value(this.skip(at + 1))]);
        at = this.skip(this.at);
        if (text[at] === "}") break;
        if (text[at] !== ",") this.fail("Expecting ',' delimiter", at);
        at = this.skip(at + 1);
      }
      this.at = at + 1;
    }
    const values = new Map(pairs);
    if (values.size < pairs.length) {
      const [name, times] = mostCommon(pairs.map(([key]) => key));
      this.reject(`the key ${repr(name)} is there ${times} times`);
    }
    return values;
  }

  private array(start: number): Json[] {
    const values: Json[] = [];
    let at = this.skip(start + 1);
    if (this.text[at] === "]") {
      this.at = at + 1;
      return values;
    }
    for (;;) {
      values.push(this.value(at));
      at = this.skip(this.at);
      if (this.text[at] === "]") break;
      if (this.text[at] !== ",") this.fail("Expecting ',' delimiter", at);
      at = this.skip(at + 1);
    }
    this.at = at + 1;
    return values;
  }
}

// As Python's own parser: any nesting, NaN and infinity. Its messages start with "tokenizer".
class LooseParser extends Parser {
  protected override checkNesting(): void {}

  protected override fail(message: string, at: number): never {
    const before = this.text.slice(0, at).split("\n");
    const place = `line ${before.length} column ${characters(before.at(-1)!) + 1} (char ${characters(this.text, at)})`;
    throw new ModelFileError(`${this.what}: cannot be read (${message}: ${place})`);
  }

  protected override whole(digits: string): bigint {
    const count = digits.replace("-", "").length;
    if (count > PYTHON_DIGITS) {
      const problem = `Exceeds the limit (${PYTHON_DIGITS} digits) for integer string conversion`;
      const remedy = "use sys.set_int_max_str_digits() to increase the limit";
      this.reject(`cannot be read (${problem}: value has ${count} digits; ${remedy})`);
    }
    return BigInt(digits);
  }

  protected override real(digits: string): number {
    return Number(digits);
  }
}

/** Parses the tokenizer.json of a packed file: no repeated keys, all else that Python's json.loads allows. */
export function parseLoosely(raw: Uint8Array, remedy: string): Json {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(raw);
    return new LooseParser(text, "tokenizer").parse();
  } catch (error) {
    if (error instanceof ModelFileError) throw new ModelFileError(`${error.message}; ${remedy}`);
    const isDeep = error instanceof RangeError;
    const problem = isDeep ? "maximum recursion depth exceeded" : `not UTF-8`;
    throw new ModelFileError(`tokenizer: cannot be read (${problem}); ${remedy}`);
  }
}

/** How many characters a text has, or its first `end` units. */
function characters(text: string, end = text.length): number {
  return [...text.slice(0, end)].length;
}

/** Parses strictly: no repeated keys, NaN or infinity, bounded numbers and nesting. A message starts with `what`. */
export function parseJson(text: string, what: string): Json {
  return new Parser(text, what).parse();
}

export function parseObject(text: string, what: string): JsonObject {
  const value = parseJson(text, what);
  if (!(value instanceof Map)) throw new ModelFileError(`${what}: is ${repr(value)}, must be an object, {...}`);
  return value;
}

/** The name that is there most often, the first of them. */
export function mostCommon(names: string[]): [string, number] {
  const counts = new Map<string, number>();
  for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].reduce((best, one) => (one[1] > best[1] ? one : best));
}

/** By code point, as Python sorts. */
export function byCodePoint(a: string, b: string): number {
  const [left, right] = [[...a], [...b]];
  for (let i = 0; i < Math.min(left.length, right.length); ++i) {
    const difference = left[i]!.codePointAt(0)! - right[i]!.codePointAt(0)!;
    if (difference !== 0) return difference;
  }
  return left.length - right.length;
}

/** The one spelling of a value: no spaces, nothing escaped without need; keys sorted if `sorted`. */
export function writeJson(value: Json, sorted = true): string {
  if (typeof value === "string") return JSON.stringify(value).replace(/\\u([\da-f]{4})/g, unescapeSurrogate);
  if (typeof value === "number") return reprFloat(value);
  if (Array.isArray(value)) return `[${value.map((one) => writeJson(one, sorted)).join(",")}]`;
  if (value instanceof Map) {
    const names = sorted ? [...value.keys()].sort(byCodePoint) : [...value.keys()];
    return `{${names.map((name) => `${writeJson(name)}:${writeJson(value.get(name)!, sorted)}`).join(",")}}`;
  }
  return String(value);
}

// JSON.stringify escapes half surrogate pairs, which Python leaves for its UTF-8 encoder to refuse.
function unescapeSurrogate(escape: string, digits: string): string {
  return digits >= "d800" && digits <= "dfff" ? String.fromCharCode(parseInt(digits, 16)) : escape;
}

/** A float as Python spells it: the same shortest digits as JavaScript, but other exponents. */
export function reprFloat(value: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  if (Object.is(value, -0)) return "-0.0";
  const [digits, power] = value.toExponential().split("e") as [string, string];
  const exponent = Number(power);
  if (value !== 0 && (exponent < -4 || exponent >= 16)) {
    return `${digits}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }
  const all = digits.replace(/[-.]/g, "");
  const sign = value < 0 ? "-" : "";
  if (exponent < 0) return `${sign}0.${"0".repeat(-exponent - 1)}${all}`;
  return `${sign}${all.slice(0, exponent + 1).padEnd(exponent + 1, "0")}.${all.slice(exponent + 1) || "0"}`;
}

const ESCAPES: Record<string, string> = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" };

function escapeCharacter(character: string): string {
  const code = character.codePointAt(0)!.toString(16);
  if (ESCAPES[character] !== undefined) return ESCAPES[character];
  return code.length <= 2 ? `\\x${code.padStart(2, "0")}` : code.length <= 4 ? `\\u${code.padStart(4, "0")}`
    : `\\U${code.padStart(8, "0")}`;
}

/** A value as Python's repr shows it. */
export function repr(value: Json | undefined): string {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number") return reprFloat(value);
  if (typeof value === "string") {
    const quote = value.includes("'") && !value.includes('"') ? '"' : "'";
    const escaped = value.replace(/[\\\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu, escapeCharacter);
    return `${quote}${quote === "'" ? escaped.replaceAll("'", "\\'") : escaped}${quote}`;
  }
  if (Array.isArray(value)) return `[${value.map(repr).join(", ")}]`;
  if (value instanceof Map) return `{${[...value].map(([name, one]) => `${repr(name)}: ${repr(one)}`).join(", ")}}`;
  return String(value);
}

/** A tuple as Python's repr shows it. */
export function reprTuple(values: Json[]): string {
  return `(${values.map(repr).join(", ")}${values.length === 1 ? "," : ""})`;
}

/** Bytes as Python's repr shows them. */
export function reprBytes(bytes: Uint8Array): string {
  const quote = bytes.includes(39) && !bytes.includes(34) ? '"' : "'";
  const shown = [...bytes].map((byte) => {
    const character = String.fromCharCode(byte);
    if (ESCAPES[character] !== undefined) return ESCAPES[character];
    if (character === quote) return `\\${quote}`;
    return byte < 32 || byte > 126 ? `\\x${byte.toString(16).padStart(2, "0")}` : character;
  });
  return `b${quote}${shown.join("")}${quote}`;
}

/** Whether Python's == holds: True is 1, and 1.0 is 1. */
export function isEqual(a: Json | undefined, b: Json | undefined): boolean {
  const number = (value: Json | undefined) => (typeof value === "boolean" ? BigInt(value) : value);
  const [left, right] = [number(a), number(b)];
  if (Array.isArray(left) && Array.isArray(right)) {
    return left.length === right.length && left.every((one, i) => isEqual(one, right[i]));
  }
  if (left instanceof Map && right instanceof Map) {
    const same = ([name, one]: [string, Json]): boolean => right.has(name) && isEqual(one, right.get(name));
    return left.size === right.size && [...left].every(same);
  }
  const isNumber = (value: unknown): boolean => typeof value === "bigint" || typeof value === "number";
  // Loose on purpose: a bigint equals the number of the same value.
  return isNumber(left) && isNumber(right) ? left == right : left === right;
}
