// Puts the demo page together, a folder that any static server can serve: node assemble.mjs FOLDER
// The page, the npm package, its WebAssembly module, and the shipped models, gzipped and with their digest as name.
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { cp, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

import { readPacked } from "../dist/file.js";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const PACKAGE = join(HERE, "..");
const SHIPPED = join(PACKAGE, "..", "src", "bibert", "models");
const NAMES = ["sst2", "sentiment_2", "sentiment_4"];
const PAGE = ["index.html", "demo.css", "demo.js", "attention.js"];
const digest = (bytes) => createHash("sha256").update(bytes).digest("hex").slice(0, 12);

const folder = process.argv[2];
if (folder === undefined) throw new Error("usage: node assemble.mjs FOLDER");
if (existsSync(folder) && !existsSync(join(folder, "models.json")))
  throw new Error(`${folder} exists and is not a demo page; remove it`);
await rm(folder, { recursive: true, force: true });
await mkdir(join(folder, "models"), { recursive: true });

const scripts = (await readdir(join(PACKAGE, "dist"))).filter((name) => name.endsWith(".js"));
const files = [...PAGE, "bibert/bibert.wasm", ...scripts.map((name) => `bibert/dist/${name}`)];
const hash = createHash("sha256");
let engine = 0;
for (const file of files) {
  const from = file.startsWith("bibert/") ? join(PACKAGE, file.slice("bibert/".length)) : join(HERE, file);
  const bytes = await readFile(from);
  hash.update(file).update(bytes);
  engine += gzipSync(bytes).length; // servers gzip these
  await cp(from, join(folder, file));
}

const shipped = [];
for (const name of NAMES) {
  const bytes = await readFile(join(SHIPPED, `${name}.bibert`));
  const { config } = await readPacked(new Uint8Array(bytes), name);
  const packed = gzipSync(bytes, { level: 9 });
  const file = `models/${name}-${digest(bytes)}.bibert.gz`;
  await writeFile(join(folder, file), packed);
  shipped.push({ name, bits: config.activation_bits, layers: config.layers, file, bytes: packed.length });
}
const list = JSON.stringify({ engine, shipped });
await writeFile(join(folder, "models.json"), list);
hash.update(list);

const worker = (await readFile(join(HERE, "sw.js"), "utf8"))
  .replace('"development"', JSON.stringify(hash.digest("hex").slice(0, 12)))
  .replace("const FILES = [];", `const FILES = ${JSON.stringify(["./", "models.json", ...files])};`);
await writeFile(join(folder, "sw.js"), worker);
console.log(`${folder}: ${files.length + shipped.length + 2} files, open it with any static server`);
