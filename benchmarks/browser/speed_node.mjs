// The times in Node, for speed.py: node speed_node.mjs '{"ours": {NAME: FILE}, "rival": FILE, ...}' > TIMES.json
import * as ort from "onnxruntime-web";

import { measure, ours, rival } from "./speed.mjs";

const { ours: files, rival: model, lengths, rounds } = JSON.parse(process.argv[2]);
ort.env.wasm.numThreads = 1;
const engines = [await rival("onnxruntime-web int8", ort, model)];
for (const [name, file] of Object.entries(files)) engines.push(await ours(name, file));
process.stdout.write(JSON.stringify(await measure(engines, lengths, rounds)));
