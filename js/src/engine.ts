// The engine in WebAssembly: the C API of native/include/bibert.h, with one thread.
import { ModelFileError } from "./json.js";
import { Config, SITES } from "./schema.js";

const ABI_VERSION = 3;
const BAD_MODEL = 2;
const CONFIG_BYTES = 64;
const BATCH_BYTES = 20;

interface Exports {
  memory: WebAssembly.Memory;
  _initialize(): void;
  malloc(bytes: number): number;
  free(pointer: number): void;
  bibert_abi_version(): number;
  bibert_last_error(): number;
  bibert_model_create(config: number, data: number, size: bigint, isa: number, model: number): number;
  bibert_model_isa(model: number): number;
  bibert_logits(model: number, batch: number, threads: number, logits: number): number;
  bibert_attention(model: number, batch: number, weights: number): number;
}

/** Token ids of an input, and their token types. */
export interface Encoded {
  ids: number[];
  tokenTypes: number[];
  truncated: boolean;
}

/** A text cannot be classified; the message says why. */
export class EngineError extends Error {
  override name = "EngineError";
}

export type WasmSource = WebAssembly.Module | BufferSource | string | URL;

/** Compiles the module: bibert.wasm next to the package, unless it is given. */
export async function compile(
  source: WasmSource = new URL("../bibert.wasm", import.meta.url),
): Promise<WebAssembly.Module> {
  if (source instanceof WebAssembly.Module) return source;
  return WebAssembly.compile(await readBytes(source));
}

/** The bytes behind an address, or those given. In Node, a file: address or a path is read from the disk. */
export async function readBytes(source: BufferSource | string | URL): Promise<Uint8Array<ArrayBuffer>> {
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  if (ArrayBuffer.isView(source)) {
    return new Uint8Array(source.buffer as ArrayBuffer, source.byteOffset, source.byteLength);
  }
  const address = String(source);
  if (isNode() && !/^(https?|data|blob):/.test(address)) {
    const { readFile } = await import(/* webpackIgnore: true */ "node:fs/promises");
    try {
      return new Uint8Array(await readFile(address.startsWith("file:") ? new URL(address) : address));
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      const reason = code === "ENOENT" ? "no such file; check the spelling" : `cannot be read: ${message}`;
      throw new ModelFileError(`${address}: ${reason}`);
    }
  }
  const response = await fetch(address);
  if (!response.ok) throw new ModelFileError(`${address}: answered ${response.status}; check the address`);
  return new Uint8Array(await response.arrayBuffer());
}

function isNode(): boolean {
  return typeof process !== "undefined" && process.versions?.node !== undefined;
}

// The C library asks for an environment and a place for messages; there is neither.
function wasiImports(memory: () => WebAssembly.Memory): WebAssembly.ModuleImports {
  const badFile = (): number => 8;
  return {
    environ_sizes_get: (count: number, bytes: number): number => {
      const view = new DataView(memory().buffer);
      view.setUint32(count, 0, true);
      view.setUint32(bytes, 0, true);
      return 0;
    },
    environ_get: (): number => 0,
    fd_close: badFile,
    fd_seek: badFile,
    fd_write: badFile,
    proc_exit: (): never => {
      throw new EngineError("the engine stopped: out of memory; use shorter or fewer texts");
    },
  };
}

/** One model in a WebAssembly instance of its own. */
export class Engine {
  private constructor(
    private readonly exports: Exports,
    private readonly model: number,
    readonly config: Config,
  ) {}

  static async create(module: WebAssembly.Module, config: Config, weights: Uint8Array): Promise<Engine> {
    let memory: WebAssembly.Memory;
    const instance = await WebAssembly.instantiate(module, { wasi_snapshot_preview1: wasiImports(() => memory) });
    const exports = instance.exports as unknown as Exports;
    memory = exports.memory;
    exports._initialize();
    if (exports.bibert_abi_version() !== ABI_VERSION) {
      const versions = `its version is ${exports.bibert_abi_version()}, this package needs ${ABI_VERSION}`;
      throw new EngineError(`bibert.wasm is of another release: ${versions}; install both together`);
    }
    const scratch = new Scratch(exports);
    try {
      const struct = scratch.allocate(CONFIG_BYTES);
      const data = scratch.allocate(weights.length);
      const model = scratch.allocate(4);
      writeConfig(new DataView(exports.memory.buffer, struct, CONFIG_BYTES), config);
      new Uint8Array(exports.memory.buffer).set(weights, data);
      const status = exports.bibert_model_create(struct, data, BigInt(weights.length), 0, model);
      if (status !== 0) throw errorOf(exports, status);
      return new Engine(exports, new DataView(exports.memory.buffer).getUint32(model, true), config);
    } finally {
      scratch.free();
    }
  }

  /** The instruction set the model runs on. */
  get isa(): string {
    return readString(this.exports, this.exports.bibert_model_isa(this.model));
  }

  /** One row of logits for each input. */
  logits(inputs: Encoded[]): Float32Array[] {
    if (inputs.length === 0) return [];
    return this.compute(inputs, 4 * inputs.length * this.config.labels, (batch, logits) => {
      const status = this.exports.bibert_logits(this.model, batch, 1, logits);
      if (status !== 0) throw errorOf(this.exports, status);
      const { labels } = this.config;
      const out = new Float32Array(this.exports.memory.buffer, logits, inputs.length * labels);
      return inputs.map((_, i) => out.slice(i * labels, (i + 1) * labels));
    });
  }

  /** The attention weights of an input: [layer][head][query][key]. */
  attention(input: Encoded): Uint8Array {
    const size = this.config.layers * this.config.heads * input.ids.length ** 2;
    return this.compute([input], size, (batch, weights) => {
      const status = this.exports.bibert_attention(this.model, batch, weights);
      if (status !== 0) throw errorOf(this.exports, status);
      return new Uint8Array(this.exports.memory.buffer, weights, size).slice();
    });
  }

  /** Calls `use` with the address of a batch and of `bytes` for its result. */
  private compute<T>(inputs: Encoded[], bytes: number, use: (batch: number, result: number) => T): T {
    const tokens = inputs.reduce((sum, input) => sum + input.ids.length, 0);
    const scratch = new Scratch(this.exports);
    try {
      const batch = scratch.allocate(BATCH_BYTES);
      const lengths = scratch.allocate(4 * inputs.length);
      const ids = scratch.allocate(4 * tokens);
      const types = scratch.allocate(4 * tokens);
      const result = scratch.allocate(bytes);
      const { buffer } = this.exports.memory;
      new Uint32Array(buffer, lengths).set(inputs.map((input) => input.ids.length));
      new Int32Array(buffer, ids).set(inputs.flatMap((input) => input.ids));
      new Int32Array(buffer, types).set(inputs.flatMap((input) => input.tokenTypes));
      new Uint32Array(buffer, batch).set([inputs.length, lengths, ids, types, 0]);
      return use(batch, result);
    } finally {
      scratch.free();
    }
  }
}

/** Memory of the instance for one call. */
class Scratch {
  private readonly pointers: number[] = [];

  constructor(private readonly exports: Exports) {}

  allocate(bytes: number): number {
    const pointer = this.exports.malloc(Math.max(bytes, 1));
    if (pointer === 0) throw new EngineError(`${bytes} bytes of memory are not available; use shorter or fewer texts`);
    this.pointers.push(pointer);
    return pointer;
  }

  free(): void {
    for (const pointer of this.pointers) this.exports.free(pointer);
  }
}

function writeConfig(view: DataView, config: Config): void {
  const thresholds = config.thresholds.reduce((mask, site) => mask | (1 << SITES.indexOf(site)), 0);
  const numbers = [
    config.layers, config.hidden, config.heads, config.head_size, config.intermediate, config.vocabulary,
    config.positions, config.token_types, config.labels, thresholds, Number(config.score_thresholds),
    config.ffn_levels === "bool" ? 1 : 0,
  ];
  numbers.forEach((number, i) => view.setUint32(4 * i, number, true));
  view.setFloat64(48, config.norm_eps, true);
  view.setUint32(56, config.activation_bits, true);
  view.setUint32(60, config.attention_bits, true);
}

function readString(exports: Exports, pointer: number): string {
  const bytes = new Uint8Array(exports.memory.buffer, pointer);
  return new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0)));
}

function errorOf(exports: Exports, status: number): Error {
  const message = readString(exports, exports.bibert_last_error());
  return status === BAD_MODEL ? new ModelFileError(message) : new EngineError(message);
}
