// What the tokenizer.json of a packed file may hold: BERT's tokenizer, within bounds. The table and the messages of
// packed/tokenizer.py in the Python package; docs/packed-format.md, section 7, has the same table.
import { Json, JsonObject, ModelFileError, parseLoosely, repr } from "./json.js";
import { LIMITS } from "./schema.js";

const BYTES_PER_TOKEN = 32; // how long a tokenizer may be; BERT's own need 15 bytes for a token
const SPARE_BYTES = 2 ** 18;
const MOST_ADDED = 4096;
const LONGEST_NAME = 64; // characters of an added or special token
const LONGEST_WORD = 100; // characters, as in BERT; the time for a word grows with the square
const REMEDY = "use a plain BERT tokenizer";

/** Throws ModelFileError unless a value follows it; the string is the value's place. */
type Rule = (value: Json, at: string) => void;
type Rules = Record<string, Rule>;

function rulesFor(vocabulary: number): Rule {
  const [flag, row, tokenType] = [oneOf(true, false), whole(0, vocabulary), whole(0, Number(LIMITS.token_types))];
  const piece = keyed({
    SpecialToken: object({ id: name, type_id: tokenType }),
    Sequence: object({ id: oneOf("A", "B"), type_id: tokenType }),
  });
  const special = object({ id: name, ids: items(row, 16, 1), tokens: items(name, 16, 1) });
  return object({
    version: oneOf("1.0"),
    truncation: anything, // the runtime decides about both
    padding: anything,
    added_tokens: items(object({
      id: row, content: name, single_word: flag, lstrip: flag, rstrip: flag, normalized: flag, special: flag,
    }), MOST_ADDED),
    normalizer: typed({
      BertNormalizer: {
        clean_text: flag, handle_chinese_chars: flag, strip_accents: oneOf(true, false, null), lowercase: flag,
      },
    }),
    pre_tokenizer: typed({ BertPreTokenizer: {} }),
    post_processor: typed({
      TemplateProcessing: { single: items(piece, 16), pair: items(piece, 16), special_tokens: named(special, 16) },
      BertProcessing: { sep: pair(name, row), cls: pair(name, row) },
    }),
    decoder: orNull(typed({ WordPiece: { prefix: name, cleanup: flag } })),
    model: typed({
      WordPiece: {
        unk_token: name,
        continuing_subword_prefix: oneOf("##"),
        max_input_chars_per_word: whole(1, LONGEST_WORD + 1),
        vocab: named(row, vocabulary),
      },
    }),
  });
}

/** The values of a tokenizer.json that follow the rules; `normalize` is what its normalizer does to a text. */
export function readTokenizer(
  raw: Uint8Array,
  vocabulary: number,
  normalize: (values: any, text: string) => string,
): any {
  checkTokenizerSize(raw.length, vocabulary);
  const found = parseLoosely(raw, REMEDY);
  rulesFor(vocabulary)(found, "");
  const model = (found as JsonObject).get("model") as JsonObject;
  const vocab = model.get("vocab") as Map<string, bigint>;
  model.delete("vocab"); // its names are no keys of an object
  const values = plain(found) as any;
  if (!vocab.has(values.model.unk_token)) refuse("model.unk_token", values.model.unk_token, "a token of the vocabulary");
  if (values.post_processor.type === "TemplateProcessing") checkTemplate(values.post_processor);
  values.model.vocab = new Map([...vocab].map(([token, id]) => [token, Number(id)]));
  const { truncation: _, padding: __, ...read } = values;
  if (hasHalfCharacter(read)) {
    throw new ModelFileError(`tokenizer: cannot be read (half a character); ${REMEDY}`);
  }
  checkAdded(values, normalize);
  return values;
}

// Maps as plain objects without a prototype, and whole numbers as number: the rules have bounded them.
function plain(value: Json): unknown {
  if (typeof value === "bigint") return Number(value);
  if (Array.isArray(value)) return value.map(plain);
  if (!(value instanceof Map)) return value;
  const out = Object.create(null) as Record<string, unknown>;
  for (const [key, one] of value) out[key] = plain(one);
  return out;
}

function hasHalfCharacter(value: unknown): boolean {
  if (typeof value === "string") return /\p{Cs}/u.test(value);
  if (value instanceof Map) return [...value.keys()].some(hasHalfCharacter);
  if (typeof value !== "object" || value === null) return false;
  return Object.entries(value).some(([key, one]) => hasHalfCharacter(key) || hasHalfCharacter(one));
}

// Each text must be there once, and something besides: a packed model answers an empty text too.
function checkTemplate(template: any): void {
  const isKnown = (id: string): boolean => template.special_tokens[id]?.id === id;
  for (const { SpecialToken } of [...template.single, ...template.pair]) {
    if (SpecialToken !== undefined && !isKnown(SpecialToken.id)) {
      refuse("post_processor", SpecialToken.id, "a key and id of special_tokens");
    }
  }
  for (const [kind, texts] of [["single", ["A"]], ["pair", ["A", "B"]]] as const) {
    const found = template[kind].flatMap((piece: any) => piece.Sequence?.id ?? []).sort();
    if (found.join() !== texts.join() || template[kind].length === texts.length) {
      refuse(`post_processor.${kind}`, found.join(", "), `${texts.join(" and ")} once each, and a special token`);
    }
  }
}

// The tokenizers library gives an added token the id of the vocabulary, or else the next that is free.
function checkAdded(values: any, normalize: (values: any, text: string) => string): void {
  const vocab = values.model.vocab as Map<string, number>;
  const ids = new Map<string, number>();
  let last = -1;
  for (const { content } of values.added_tokens) {
    const id = ids.get(content) ?? vocab.get(content) ?? (last >= vocab.size ? last + 1 : vocab.size);
    ids.set(content, id);
    last = Math.max(last, id);
  }
  values.added_tokens.forEach((token: any, number: number) => {
    const id = ids.get(token.content)!;
    if (id !== token.id) refuse(`added_tokens[${number}].id`, BigInt(token.id), String(id));
    if (token.normalized && normalize(values, token.content) === "") {
      refuse(`added_tokens[${number}].content`, token.content, "more than characters that vanish");
    }
  });
}

function cut(value: Json | undefined, most: number): string {
  return [...repr(value)].slice(0, most).join("");
}

function refuse(at: string, value: Json, allowed: string): never {
  const shown = value instanceof Map ? `an object of ${value.size}`
    : Array.isArray(value) ? `a list of ${value.length}` : cut(value, 80);
  throw new ModelFileError(`tokenizer: ${at || "the whole"} is ${shown}, must be ${allowed}; ${REMEDY}`);
}

// ---- rules

function anything(): void {}

function name(value: Json, at: string): void {
  if (typeof value !== "string" || value === "" || [...value].length > LONGEST_NAME) {
    refuse(at, value, `a string of 1 to ${LONGEST_NAME} characters`);
  }
}

function oneOf(...allowed: (string | boolean | null)[]): Rule {
  const spelled = allowed.map((one) => (typeof one === "string" ? one : repr(one))).join(" or ");
  return (value, at) => {
    if (!allowed.includes(value as string)) refuse(at, value, spelled);
  };
}

function whole(least: number, end: number): Rule {
  return (value, at) => {
    if (typeof value !== "bigint" || value < least || value >= end) {
      refuse(at, value, `a whole number from ${least} to ${end - 1}`);
    }
  };
}

function orNull(rule: Rule): Rule {
  return (value, at) => (value === null ? undefined : rule(value, at));
}

function items(rule: Rule, most: number, least = 0): Rule {
  return (value, at) => {
    if (!Array.isArray(value) || value.length < least || value.length > most) {
      return refuse(at, value, `a list of ${least} to ${most}`);
    }
    value.forEach((one, number) => rule(one, `${at}[${number}]`));
  };
}

function pair(...rules: Rule[]): Rule {
  return (value, at) => {
    if (!Array.isArray(value) || value.length !== rules.length) return refuse(at, value, `a list of ${rules.length}`);
    value.forEach((one, i) => rules[i]!(one, at));
  };
}

/** An object whose keys are any names. */
function named(rule: Rule, most: number): Rule {
  return (value, at) => {
    if (!(value instanceof Map) || value.size < 1 || value.size > most) {
      return refuse(at, value, `an object of 1 to ${most}`);
    }
    try {
      for (const one of value.values()) rule(one, at);
    } catch (error) {
      if (!(error instanceof ModelFileError)) throw error;
      // Once more with the name, which takes too long to spell for a whole vocabulary.
      for (const [key, one] of value) rule(one, `${at}[${cut(key, 40)}]`);
    }
  };
}

/** An object with exactly these keys. */
function object(rules: Rules): Rule {
  const keys = Object.keys(rules);
  return (value, at) => {
    if (!(value instanceof Map) || value.size !== keys.length || !keys.every((key) => value.has(key))) {
      const found = value instanceof Map ? [...value.keys()].join(", ") : value;
      return refuse(at, found, `an object with the keys ${keys.join(", ")}`);
    }
    for (const key of keys) rules[key]!(value.get(key)!, at ? `${at}.${key}` : key);
  };
}

/** An object with one key, which chooses the rule of its value. */
function keyed(rules: Rules): Rule {
  return (value, at) => {
    const [key] = value instanceof Map && value.size === 1 ? value.keys() : [];
    if (key === undefined || !Object.hasOwn(rules, key)) {
      return refuse(at, value, `an object with one key, ${Object.keys(rules).join(" or ")}`);
    }
    rules[key]!((value as JsonObject).get(key)!, `${at}.${key}`);
  };
}

/** An object whose `type` chooses its other keys. */
function typed(rules: Record<string, Rules>): Rule {
  return (value, at) => {
    const kind = value instanceof Map ? (value.get("type") ?? null) : value;
    if (typeof kind !== "string" || !Object.hasOwn(rules, kind)) {
      return refuse(at, kind, `of the type ${Object.keys(rules).join(" or ")}`);
    }
    object({ type: anything, ...rules[kind] })(value, at);
  };
}

/** Refuses a tokenizer of more bytes than the format allows; a file is checked before its digest is computed. */
export function checkTokenizerSize(size: number, vocabulary: number): void {
  const most = SPARE_BYTES + BYTES_PER_TOKEN * vocabulary;
  if (size > most) {
    throw new ModelFileError(`tokenizer: has ${size} bytes, at most ${most} for ${vocabulary} tokens; ${REMEDY}`);
  }
}
