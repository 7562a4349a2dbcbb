// How large the inputs of the LayerNorms can be, for any text: a model that fits answers every text. The formulas,
// limits and messages of packed/bounds.py in the Python package; docs/numeric-contract.md (rule 7) derives them.
import { ModelFileError, repr } from "./json.js";
import { Config } from "./schema.js";

const GRID = 2 ** 16;
const LAYER_NORM_LIMIT = 2 ** 15;
const ROUNDING = 1 + 2 ** -20; // more than a few float32 roundings of terms without cancellation can add
const CANCELLATION = 2 ** -50; // of the square of the mean: what the variance of a row can lose to rounding
const LARGEST = 3.4028234663852886e38; // a float32

/** The numbers of a tensor, by its name. */
export type Floats = (name: string) => Float32Array;
/** The bytes of a tensor of bits, by its name. */
export type Bits = (name: string) => Uint8Array;

interface NormBound {
  name: string;
  channels: Float64Array; // the greatest magnitude of each channel of its input
}

/** Throws unless every LayerNorm and every logit stays in range for every text. */
export function checkBounds(config: Config, floats: Floats, bits: Bits): void {
  for (const { name, channels } of normBounds(config, floats, bits)) {
    const length = Math.sqrt(channels.reduce((sum, one) => sum + one * one, 0));
    if (!(length < LAYER_NORM_LIMIT)) {
      const limits = `a row of its input can have the length ${shortFloat(length)}, must stay below ${LAYER_NORM_LIMIT}`;
      throw new ModelFileError(`${repr(name)}: ${limits}; train with a lower learning rate or more weight decay`);
    }
  }
  const weight = floats("classifier.weight");
  let largest = 0; // a pooled channel is a tanh
  floats("classifier.bias").forEach((bias, label) => {
    const row = weight.subarray(label * config.hidden, (label + 1) * config.hidden);
    largest = Math.max(largest, row.reduce((sum, one) => sum + Math.abs(one), 0) + Math.abs(bias));
  });
  largest *= ROUNDING;
  if (!(largest < LARGEST)) {
    const limits = `a logit can reach ${shortFloat(largest)}, must stay below ${shortFloat(LARGEST)}`;
    throw new ModelFileError(`'classifier': ${limits}`);
  }
}

function* normBounds(config: Config, floats: Floats, bits: Bits): Generator<NormBound> {
  const { hidden, intermediate } = config;
  const scale = floats("embeddings.word.scale").reduce((most, one) => Math.max(most, one), -Infinity);
  const tables = ["token_type", "position"].map((name) => columnSizes(floats(`embeddings.${name}`), hidden));
  let norm: NormBound = {
    name: "embeddings.norm",
    channels: tables[0]!.map((one, c) => (scale + (one + tables[1]![c]!)) * ROUNDING),
  };
  yield norm;
  const top = 2 ** config.activation_bits - 1;
  const after = (part: string, linear: string, most: (channel: number) => number): NormBound => {
    const [scales, biases] = [floats(`${linear}.scale`), floats(`${linear}.bias`)];
    const [weights, shifts] = [floats(`${norm.name}.weight`), floats(`${norm.name}.bias`)];
    const gain = gainOf(config, norm.channels);
    const channels = Float64Array.from(scales, (one, c) => {
      const added = Math.abs(one) * most(c) + Math.abs(biases[c]!);
      return (added + (Math.abs(weights[c]!) * gain + Math.abs(shifts[c]!))) * ROUNDING;
    });
    return { name: `${part}_norm`, channels };
  };
  for (let layer = 0; layer < config.layers; ++layer) {
    const at = `layers.${layer}`;
    yield (norm = after(`${at}.attention`, `${at}.attention_output`, () => top * config.heads * config.head_size));
    // Levels from 0 up reach their greatest sum where the weights have one sign.
    const ones = config.ffn_levels === "bool" ? onesOfRows(bits(`${at}.output.bits`), hidden) : undefined;
    const inputs = (c: number): number => (ones ? Math.max(ones[c]!, intermediate - ones[c]!) : intermediate);
    yield (norm = after(`${at}.output`, `${at}.output`, (c) => top * inputs(c)));
  }
}

// The greatest magnitude of a normalized value, before weight and bias: √(C - 1), unless epsilon is so small that the
// rounding of the variance and of the grid counts.
function gainOf(config: Config, channels: Float64Array): number {
  const lost = CANCELLATION * Math.min(...channels) ** 2;
  const { hidden, norm_eps: eps } = config;
  return Math.sqrt((hidden - 1) * Math.max(1, lost / eps)) + 0.5 / GRID / Math.sqrt(eps);
}

function columnSizes(values: Float32Array, columns: number): Float64Array {
  const sizes = new Float64Array(columns);
  values.forEach((value, i) => (sizes[i % columns] = Math.max(sizes[i % columns]!, Math.abs(value))));
  return sizes;
}

function onesOfRows(bytes: Uint8Array, rows: number): number[] {
  const counts: number[] = new Array(rows).fill(0);
  const rowBytes = bytes.length / rows;
  bytes.forEach((byte, i) => {
    for (let rest = byte; rest !== 0; rest &= rest - 1) ++counts[Math.floor(i / rowBytes)]!;
  });
  return counts;
}

/** Six digits, as Python's format `.6g` spells them. */
function shortFloat(value: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : "inf";
  const [digits, power] = value.toExponential(5).split("e") as [string, string];
  const short = (text: string): string => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
  const exponent = Number(power);
  if (exponent >= -4 && exponent < 6) return short(value.toFixed(5 - exponent));
  return `${short(digits)}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
}
