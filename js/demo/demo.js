// The demo page: downloads the models, keeps them for later visits, and labels the text while it is typed. Each model
// has a Web Worker of its own.
import { loadInWorker } from "./bibert/dist/worker.js";
import { AttentionView } from "./attention.js";

const MODELS = "bibert-models"; // the cache; sw.js keeps the page itself
const PAUSE = 60; // milliseconds without a key before attention is computed
const WARM_UP = 3; // calls before the first that is timed: the browser compiles the engine better in the meantime
const EXAMPLES = [
  "Dull, lifeless and far too long.",
  "Not bad at all, though the ending drags.",
  "I expected a masterpiece and got a nap.",
];
const $ = (id) => document.getElementById(id);
const models = []; // {name, bits, card, classifier, isBusy, again}

const make = (kind, parent, text = "") => {
  const made = document.createElement(kind);
  made.textContent = text;
  parent.append(made);
  return made;
};
const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;

function complain(error) {
  $("trouble").hidden = !error;
  $("trouble").textContent = error ? error.message : "";
}

// ---- models

/** The bytes of a model, from the cache or the network; `onProgress` gets the share that is there. */
async function download({ file, bytes }, onProgress) {
  const cache = "caches" in window ? await caches.open(MODELS).catch(() => null) : null;
  const kept = await cache?.match(file);
  const response = kept ?? (await fetch(file));
  if (!response.ok) throw new Error(`${file}: the download failed with status ${response.status}; reload the page`);
  const chunks = [];
  let done = 0;
  for (const reader = response.body.getReader(); ; ) {
    const { value, done: isLast } = await reader.read();
    if (isLast) break;
    chunks.push(value);
    done += value.length;
    onProgress(done / bytes);
  }
  const blob = new Blob(chunks);
  // A browser that is short of space keeps nothing, and downloads again next time.
  if (!kept) await cache?.put(file, new Response(blob)).catch(() => {});
  return { blob, wasKept: Boolean(kept) };
}

/** A server may have unpacked it already. */
async function unpacked(blob) {
  const [first, second] = new Uint8Array(await blob.slice(0, 2).arrayBuffer());
  if (first !== 0x1f || second !== 0x8b) return blob.arrayBuffer();
  return new Response(blob.stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

function makeCard({ name, bits, layers, bytes }) {
  const card = make("article", $("models"));
  card.className = "model";
  const title = make("h3", card, `${bits} bit${bits > 1 ? "s" : ""} `);
  make("small", title, `${name}, ${layers} layers, ${megabytes(bytes)}`);
  const best = make("p", card);
  best.className = "best";
  const scores = make("ul", card);
  scores.className = "scores";
  const note = make("p", card);
  note.className = "note";
  return { best, scores, note };
}

async function start(model) {
  const { card } = model;
  const bar = make("progress", card.best);
  bar.setAttribute("aria-label", `Download of the model with ${model.bits} bits`);
  bar.value = 0;
  try {
    const { blob, wasKept } = await download(model, (share) => (bar.value = share));
    model.classifier = await loadInWorker(await unpacked(blob));
    model.wasKept = wasKept;
    make("option", $("model"), `${model.bits} bit${model.bits > 1 ? "s" : ""}`).value = model.name;
    for (let i = 0; i < WARM_UP; ++i) await model.classifier.predict([$("text").value]);
    await classify(model);
    if (models.filter((one) => one.classifier).length === 1) look();
  } catch (error) {
    card.best.textContent = "";
    complain(error);
  }
}

// ---- answers

/** Labels the text; if it changes meanwhile, once more. */
async function classify(model) {
  if (!model.classifier) return;
  model.again = model.isBusy;
  if (model.isBusy) return;
  model.isBusy = true;
  try {
    const text = $("text").value;
    const start = performance.now();
    const [scores] = await model.classifier.probabilities([text]);
    show(model, scores, performance.now() - start);
    complain(null);
  } catch (error) {
    complain(error);
  }
  model.isBusy = false;
  if (model.again) classify(model);
}

function show({ card, classifier }, scores, time) {
  const best = scores.indexOf(Math.max(...scores));
  card.best.textContent = classifier.labels[best];
  card.scores.replaceChildren();
  classifier.labels.forEach((label, i) => {
    const row = make("li", card.scores);
    make("i", row).style.width = `${100 * scores[i]}%`;
    make("span", row, label);
    make("span", row, `${(100 * scores[i]).toFixed(1)} %`);
  });
  card.note.textContent = `${time.toFixed(1)} ms from key to answer`;
}

const view = new AttentionView($("overview"), $("large"), () => {
  $("layer").value = view.layer;
  $("head").value = view.head;
}, (text) => ($("reading").textContent = text));

let looking = 0;

async function look() {
  const model = models.find(({ name }) => name === $("model").value);
  if (!model?.classifier) return;
  const number = ++looking;
  const attention = await model.classifier.attention($("text").value).catch(complain);
  if (!attention || number !== looking) return;
  for (const [id, count] of [["layer", attention.layers], ["head", attention.heads]]) {
    if ($(id).length !== count) $(id).replaceChildren(...Array.from({ length: count }, (_, i) => new Option(i + 1, i)));
  }
  const bits = Math.log2(attention.levels);
  $("about-attention").textContent = bits === 1
    ? "Each cell is one bit: whether a token (row) attends to another (column)."
    : `Each cell is a weight of ${bits} bits: how much a token (row) attends to another (column).`;
  view.show(attention);
}

let pause = 0;

function read() {
  models.forEach(classify);
  clearTimeout(pause);
  pause = setTimeout(look, PAUSE);
}

// ---- start

async function keepOffline() {
  if (!("serviceWorker" in navigator)) return false;
  await navigator.serviceWorker.register("sw.js");
  await navigator.serviceWorker.ready;
  return true;
}

async function forgetOldModels(files) {
  const cache = await caches.open(MODELS);
  for (const { url } of await cache.keys()) if (!files.some((file) => url.endsWith(`/${file}`))) await cache.delete(url);
}

async function main() {
  for (const text of EXAMPLES) {
    make("button", $("examples"), text).addEventListener("click", () => {
      $("text").value = text;
      read();
    });
  }
  $("text").addEventListener("input", read);
  $("model").addEventListener("change", look);
  for (const id of ["layer", "head"]) {
    $(id).addEventListener("change", () => view.choose(Number($("layer").value), Number($("head").value)));
  }
  const kept = keepOffline().catch(() => false);
  const { engine, shipped } = await (await fetch("models.json")).json();
  for (const entry of shipped) models.push({ ...entry, card: makeCard(entry) });
  for (const model of models) await start(model); // the smallest first
  const all = models.reduce((sum, { bytes }) => sum + bytes, engine);
  const kilobytes = Math.round(engine / 1000);
  $("download").textContent = models.every(({ wasKept }) => wasKept)
    ? `Everything came from this browser's own store: nothing was downloaded on this visit.`
    : `Download: ${megabytes(models[0].bytes + engine)} for 1 bit, of which ${kilobytes} KB are engine and page; ` +
      `${megabytes(all)} with all three models.`;
  if ("caches" in window) await forgetOldModels(shipped.map(({ file }) => file)).catch(() => {});
  $("offline").textContent = (await kept) ? "Works offline from now on." : "";
  document.documentElement.dataset.ready = "true"; // for tests
}

main().catch(complain);
