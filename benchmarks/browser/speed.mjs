// Times of packed models and of onnxruntime-web's int8 (wasm SIMD), for speed.py, in Node and in a page. The engines
// take turns: in every round each one is called twice, and the second call counts. One thread each, no tokenizer.
import { compile, Engine, readBytes } from "../../js/dist/engine.js";
import { readPacked } from "../../js/dist/file.js";

const VOCABULARY = 30_000; // ids below it are words of every model

/** Ids of a text of `length` tokens, the same for all engines. */
function idsOf(length) {
  return Array.from({ length }, (_, i) => 1000 + ((i * 7919) % (VOCABULARY - 1000)));
}

/** One of our engines: {name, run(ids)}. */
export async function ours(name, file, wasm) {
  const { config, weights } = await readPacked(await readBytes(file), name);
  const engine = await Engine.create(await compile(wasm), config, weights);
  return { name, run: async (ids) => engine.logits([{ ids, tokenTypes: ids.map(() => 0), truncated: false }]) };
}

/** The rival; `ort` is its module, `model` an address or bytes. */
export async function rival(name, ort, model) {
  const options = { executionProviders: ["wasm"], graphOptimizationLevel: "all", intraOpNumThreads: 1 };
  const session = await ort.InferenceSession.create(model, options);
  const tensor = (values) => new ort.Tensor("int64", BigInt64Array.from(values, BigInt), [1, values.length]);
  const run = (ids) => session.run({ input_ids: tensor(ids), attention_mask: tensor(ids.map(() => 1)) });
  return { name, run };
}

/** Milliseconds of every round: {length: {name: [...]}}. */
export async function measure(engines, lengths, rounds) {
  const times = {};
  for (const length of lengths) {
    const ids = idsOf(length);
    times[length] = Object.fromEntries(engines.map(({ name }) => [name, []]));
    for (const { run } of engines) for (let i = 0; i < 5; ++i) await run(ids);
    for (let round = 0; round < rounds; ++round) {
      for (const { name, run } of engines) {
        await run(ids);
        const start = performance.now();
        await run(ids);
        times[length][name].push(performance.now() - start);
      }
    }
  }
  return times;
}
