// A classifier in a Web Worker, so that a page stays responsive. This file is both ends: `loadInWorker` on the page,
// and the worker itself, which it starts from this very file.
import { Attention, Classifier, load, LoadOptions, Prediction, Text } from "./index.js";

type Call = "predict" | "probabilities" | "logits" | "attention";
type Request = { id: number; call: "load" | Call; input: unknown; options?: LoadOptions };
type Reply = { id: number; value?: unknown; error?: { name: string; message: string } };

/** A classifier whose methods return promises. */
export interface WorkerClassifier {
  readonly labels: readonly string[];
  predict(texts: string | readonly Text[]): Promise<Prediction[]>;
  probabilities(texts: string | readonly Text[]): Promise<number[][]>;
  logits(texts: string | readonly Text[]): Promise<Float32Array[]>;
  attention(text: Text): Promise<Attention>;
  /** Ends the worker; calls that have not finished never do. */
  close(): void;
}

/** Starts a worker and loads a packed model in it; arguments and errors are those of `load`. */
export async function loadInWorker(
  source: string | URL | BufferSource,
  options: { wasm?: string | URL | BufferSource | WebAssembly.Module } = {},
): Promise<WorkerClassifier> {
  const worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module", name: "bibert" });
  const waiting = new Map<number, { resolve: (value: any) => void; reject: (error: Error) => void }>();
  const rejectAll = (error: Error): void => {
    for (const { reject } of waiting.values()) reject(error);
    waiting.clear();
  };
  worker.onmessage = ({ data }: MessageEvent<Reply>) => {
    const { resolve, reject } = waiting.get(data.id)!;
    waiting.delete(data.id);
    if (data.error === undefined) resolve(data.value);
    else reject(Object.assign(new Error(data.error.message), { name: data.error.name }));
  };
  worker.onerror = (event) => rejectAll(new Error(event.message || "the worker could not be started"));
  let number = 0;
  const ask = <T>(call: Request["call"], input: unknown, more: object = {}): Promise<T> =>
    new Promise((resolve, reject) => {
      waiting.set(number, { resolve, reject });
      worker.postMessage({ id: number++, call, input, ...more });
    });
  const absolute = (from: unknown): unknown =>
    typeof from === "string" || from instanceof URL ? new URL(from, globalThis.location?.href).href : from;
  const settings = options.wasm === undefined ? {} : { wasm: absolute(options.wasm) };
  try {
    const labels = await ask<string[]>("load", absolute(source), { options: settings });
    return {
      labels,
      predict: (texts) => ask("predict", texts),
      probabilities: (texts) => ask("probabilities", texts),
      logits: (texts) => ask("logits", texts),
      attention: (text) => ask("attention", text),
      close: () => worker.terminate(),
    };
  } catch (error) {
    worker.terminate();
    throw error;
  }
}

// The worker's end.
if (typeof (globalThis as any).WorkerGlobalScope !== "undefined" && (globalThis as any).name === "bibert") {
  let classifier: Classifier;
  const answer = async ({ call, input, options }: Request): Promise<unknown> => {
    if (call !== "load") return classifier[call](input as any);
    classifier = await load(input as string, options);
    return classifier.labels;
  };
  globalThis.onmessage = async ({ data }: MessageEvent<Request>) => {
    try {
      postMessage({ id: data.id, value: await answer(data) } satisfies Reply);
    } catch (error) {
      const { name, message } = error as Error;
      postMessage({ id: data.id, error: { name, message } } satisfies Reply);
    }
  };
}
