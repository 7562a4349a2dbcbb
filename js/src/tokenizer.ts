// BERT's tokenizer: texts to token ids, equal to the Python package on every text. It reads the tokenizer.json of a
// packed file and refuses one that is not BERT's.
import { Encoded, EngineError } from "./engine.js";
import { ModelFileError } from "./json.js";
import { readTokenizer } from "./rules.js";
import { DROPPED, IDEOGRAPHS, MARKS, PUNCTUATION, SPACES } from "./unicode.js";

const MOST_CHARACTERS = 100_000; // of a text; the rest is not read
const PACK_AGAIN = "pack the model again";

// Classes of a code point, as bits.
const DROP = 1;
const SPACE = 2;
const MARK = 4;
const PUNCTUATE = 8;
const IDEOGRAPH = 16;

let classes: Uint8Array | undefined;

function classesOfCodePoints(): Uint8Array {
  if (classes !== undefined) return classes;
  classes = new Uint8Array(0x110000);
  const kinds: [string, number][] = [
    [DROPPED, DROP], [SPACES, SPACE], [MARKS, MARK], [PUNCTUATION, PUNCTUATE], [IDEOGRAPHS, IDEOGRAPH],
  ];
  for (const [runs, kind] of kinds) {
    let code = 0;
    runs.split(" ").forEach((digits, i) => {
      const end = code + parseInt(digits, 36);
      if (i % 2 === 1) for (let c = code; c < end; ++c) classes![c]! |= kind;
      code = end;
    });
  }
  return classes;
}

/** A place in an input: a special token, or all tokens of text 0 or 1. */
interface Place {
  text?: number;
  token: number;
  tokenType: number;
}

export class Tokenizer {
  private readonly vocabulary: Map<string, number>;
  private readonly unknown: number;
  private readonly prefix: string;
  private readonly longestWord: number;
  private readonly normalize: (text: string) => string;
  private readonly added: Map<string, number>;
  private readonly addedPattern: RegExp | undefined;
  private readonly layouts: [Place[], Place[]];
  private names: Map<number, string> | undefined;

  /** `rows` are those of the word embedding; `name` starts messages. */
  constructor(
    raw: Uint8Array,
    rows: number,
    private readonly maxLength: number,
    name: string,
    tokenTypes = Infinity,
  ) {
    const fail = (problem: string): never => {
      throw new ModelFileError(`${name}: tokenizer: ${problem}; ${PACK_AGAIN}`);
    };
    const json = withName(name, () => readTokenizer(raw, rows, (values, text) => normalizerOf(values)(text)));
    const { model } = json;
    this.vocabulary = model.vocab;
    this.prefix = model.continuing_subword_prefix;
    this.longestWord = model.max_input_chars_per_word;
    this.normalize = normalizerOf(json);
    this.added = new Map();
    for (const token of json.added_tokens) {
      if (token.normalized || token.single_word || token.lstrip || token.rstrip) {
        fail(`the added token ${JSON.stringify(token.content)} has options that JavaScript does not read`);
      }
      this.added.set(token.content, token.id);
    }
    this.unknown = this.vocabulary.get(model.unk_token)!;
    // Of two that match at the same place, the longer one.
    const contents = [...this.added.keys()].sort((a, b) => b.length - a.length);
    const escaped = contents.map((text) => text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"));
    this.addedPattern = escaped.length > 0 ? new RegExp(`(${escaped.join("|")})`, "u") : undefined;
    this.layouts = [layoutOf(json.post_processor, 1), layoutOf(json.post_processor, 2)];
    if (specialIn(this.layouts[0]) >= maxLength) {
      fail(`adds ${specialIn(this.layouts[0])} special tokens, the longest input has ${maxLength}`);
    }
    const type = Math.max(...this.layouts[0].map((place) => place.tokenType));
    if (type >= tokenTypes) fail(`gives a text the token type ${type}, the model has ${tokenTypes} types`);
  }

  encode(text: string): Encoded {
    const room = this.maxLength - specialIn(this.layouts[0]);
    const { ids, cut } = this.read(text, room + 1); // one token more than fits shows that the text is truncated
    return fill(this.layouts[0], [ids.slice(0, room)], cut || ids.length > room);
  }

  encodePair(first: string, second: string): Encoded {
    const special = specialIn(this.layouts[1]);
    const room = this.maxLength - special;
    if (room < 1) {
      const problem = `a pair has ${special} special tokens, the longest input has ${this.maxLength}`;
      throw new EngineError(`${problem}; use single texts`);
    }
    const texts = [this.read(first, Infinity), this.read(second, Infinity)] as const;
    const kept = shares(texts[0].ids.length, texts[1].ids.length, room);
    const truncated = texts.some(({ ids, cut }, i) => cut || ids.length > kept[i]!);
    return fill(this.layouts[1], texts.map(({ ids }, i) => ids.slice(0, kept[i])), truncated);
  }

  /** The tokens behind ids, as in the vocabulary. */
  tokensOf(ids: readonly number[]): string[] {
    this.names ??= new Map([...this.vocabulary, ...this.added].map(([token, id]) => [id, token]));
    return ids.map((id) => this.names!.get(id) ?? "");
  }

  /** The tokens of a text without special ones, at least `enough` of them if it has so many. */
  private read(text: string, enough: number): { ids: number[]; cut: boolean } {
    let cut = false;
    if (text.length > MOST_CHARACTERS) {
      const characters = [...text];
      cut = characters.length > MOST_CHARACTERS;
      if (cut) text = characters.slice(0, MOST_CHARACTERS).join("");
    }
    text = text.replace(/\p{Cs}/gu, "\ufffd"); // half a surrogate pair
    const ids: number[] = [];
    for (const part of this.addedPattern === undefined ? [text] : text.split(this.addedPattern)) {
      const added = this.added.get(part);
      if (added !== undefined) ids.push(added);
      else this.readWords(this.normalize(part), enough, ids);
      if (ids.length >= enough) break;
    }
    return { ids, cut };
  }

  private readWords(text: string, enough: number, ids: number[]): void {
    const kinds = classesOfCodePoints();
    let word = "";
    const end = (): void => {
      if (word !== "") this.readWord(word, ids);
      word = "";
    };
    for (const character of text) {
      const kind = kinds[character.codePointAt(0)!]!;
      if ((kind & SPACE) !== 0) end();
      else if ((kind & PUNCTUATE) !== 0) {
        end();
        this.readWord(character, ids);
      } else word += character;
      if (ids.length >= enough) return;
    }
    end();
  }

  // The longest piece that the vocabulary has, again and again; a word with an unknown piece is unknown.
  private readWord(word: string, ids: number[]): void {
    if (word.length > this.longestWord && [...word].length > this.longestWord) {
      ids.push(this.unknown);
      return;
    }
    const pieces: number[] = [];
    for (let start = 0; start < word.length; ) {
      let end = word.length;
      let id: number | undefined;
      for (; end > start; --end) {
        const piece = word.slice(start, end);
        id = this.vocabulary.get(start === 0 ? piece : this.prefix + piece);
        if (id !== undefined) break;
      }
      if (id === undefined) {
        ids.push(this.unknown);
        return;
      }
      pieces.push(id);
      start = end;
    }
    ids.push(...pieces);
  }
}

function withName<T>(name: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    if (!(error instanceof ModelFileError)) throw error;
    throw new ModelFileError(`${name}: ${error.message}`);
  }
}

/** What BERT's normalizer does to a text. */
function normalizerOf({ normalizer }: any): (text: string) => string {
  const { clean_text: cleans, handle_chinese_chars: splits, lowercase: lowers } = normalizer;
  const strips = normalizer.strip_accents ?? lowers;
  return (text) => {
    const kinds = classesOfCodePoints();
    if (cleans || splits) {
      let out = "";
      for (const character of text) {
        const kind = kinds[character.codePointAt(0)!]!;
        if (cleans && (kind & DROP) !== 0) continue;
        if (cleans && (kind & SPACE) !== 0) out += " ";
        else if (splits && (kind & IDEOGRAPH) !== 0) out += ` ${character} `;
        else out += character;
      }
      text = out;
    }
    if (strips && /[^\0-\x7f]/.test(text)) {
      let out = "";
      for (const character of text.normalize("NFD")) {
        if ((kinds[character.codePointAt(0)!]! & MARK) === 0) out += character;
      }
      text = out;
    }
    if (!lowers) return text;
    if (!/[^\0-\x7f]/.test(text)) return text.toLowerCase();
    let out = "";
    for (const character of text) out += character.toLowerCase(); // one by one: a final sigma stays a sigma
    return out;
  };
}

// The rules have checked the post-processor.
function layoutOf(processor: any, texts: number): Place[] {
  const places: Place[] = [];
  const text = (number: number, tokenType: number): void => void places.push({ text: number, token: 0, tokenType });
  if (processor.type === "BertProcessing") {
    const special = ([, token]: [string, number], tokenType: number) => places.push({ token, tokenType });
    special(processor.cls, 0);
    for (let i = 0; i < texts; ++i) {
      text(i, i);
      special(processor.sep, i);
    }
    return places;
  }
  for (const { Sequence, SpecialToken } of texts === 1 ? processor.single : processor.pair) {
    if (Sequence !== undefined) text(Sequence.id === "A" ? 0 : 1, Sequence.type_id);
    else {
      for (const token of processor.special_tokens[SpecialToken.id].ids) {
        places.push({ token, tokenType: SpecialToken.type_id });
      }
    }
  }
  return places;
}

function specialIn(places: Place[]): number {
  return places.filter((place) => place.text === undefined).length;
}

function fill(places: Place[], texts: number[][], truncated: boolean): Encoded {
  const ids: number[] = [];
  const tokenTypes: number[] = [];
  for (const { text, token, tokenType } of places) {
    for (const id of text === undefined ? [token] : texts[text]!) {
      ids.push(id);
      tokenTypes.push(tokenType);
    }
  }
  return { ids, tokenTypes, truncated };
}

// How many tokens each of two texts keeps, by the rule "longest_first": the longer loses tokens first.
function shares(first: number, second: number, room: number): [number, number] {
  if (first + second <= room) return [first, second];
  const half = Math.floor(room / 2);
  if (Math.min(first, second) > half && room % 2 === 1) return first > second ? [half + 1, half] : [half, half + 1];
  const short = Math.min(first, second, half);
  return first > second ? [room - short, short] : [short, room - short];
}
