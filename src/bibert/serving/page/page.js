"use strict";
// The page asks the server it came from and nobody else: labels of the text while it is typed, attention, many lines.

const PAUSE = 120;  // milliseconds without a key before the server is asked
const SHOWN = 5;  // labels of a card
const MOST_ROWS = 500;  // of the table; the file has all
const $ = (id) => document.getElementById(id);
const state = { key: "", names: [], infos: {}, cards: {}, look: null, layer: 0, head: 0, batch: 32, table: [] };

// Asking.

async function ask(path, body, signal) {
  const headers = state.key ? { Authorization: `Bearer ${state.key}` } : {};
  const options = { headers, signal };
  if (body !== undefined) {
    options.method = "POST";
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  const start = performance.now();
  const reply = await fetch(path, options);
  const value = await reply.json();
  if (reply.status === 401) $("key").hidden = false;
  if (!reply.ok) throw Object.assign(new Error(value.error), { status: reply.status });
  return { value, headers: reply.headers, time: performance.now() - start };
}

function complain(error) {
  if (error && error.name === "AbortError") return;
  $("trouble").hidden = !error;
  $("trouble").textContent = error ? error.message || "The server does not answer." : "";
}

const make = (kind, parent, text = "") => {
  const made = document.createElement(kind);
  made.textContent = text;
  parent.append(made);
  return made;
};
const modelPath = (name, route) => `models/${name}/${route}`;
const percent = (score) => `${(100 * score).toFixed(1)} %`;

// Labels of the text, model by model.

function makeCard(name) {
  const info = state.infos[name];
  const card = make("article", $("models"));
  card.className = "model";
  const title = make("h3", card, `${name} `);
  make("small", title, `${info.model_dtype} activations, ${info.layers} layers`);
  const best = make("p", card);
  best.className = "best";
  const scores = make("ul", card);
  scores.className = "scores";
  const note = make("p", card);
  note.className = "note";
  return { best, scores, note };
}

function showAnswer(name, answer) {
  const { best, scores, note } = state.cards[name];
  scores.replaceChildren();
  note.textContent = "";
  best.textContent = answer ? answer.value[0].label : "";
  if (!answer) return;
  const isValue = answer.value.length === 1;  // a regression
  for (const { label, score } of answer.value.slice(0, SHOWN)) {
    const row = make("li", scores);
    if (!isValue) make("i", row).style.width = `${100 * score}%`;
    make("span", row, label);
    make("span", row, isValue ? score.toFixed(3) : percent(score));
  }
  const computing = Number(answer.headers.get("x-inference-time")).toFixed(1);
  const tokens = answer.headers.get("x-compute-tokens");
  note.textContent = `${computing} ms to compute ${tokens} tokens, ${answer.time.toFixed(0)} ms in all`;
}

let asking = new AbortController();

async function classify() {
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  const text = $("text").value;
  if (!text.trim()) return state.names.forEach((name) => showAnswer(name, null));
  const answers = state.names.map(async (name) => {
    const answer = await ask(modelPath(name, "predict"), { inputs: text }, signal);
    if (!signal.aborted) showAnswer(name, answer);
  });
  try {
    await Promise.all(answers);
    await look(text, signal);
    complain(null);
  } catch (error) {
    complain(error);
  }
}

// Attention.

async function look(text, signal) {
  const name = $("model").value;
  const { value } = await ask(modelPath(name, "attention"), { inputs: text }, signal);
  if (signal.aborted) return;
  const raw = atob(value.weights);
  value.bytes = Uint8Array.from(raw, (character) => character.charCodeAt(0));
  const isNew = !state.look || state.look.layers !== value.layers || state.look.heads !== value.heads;
  state.look = value;
  if (isNew) {
    fill($("layer"), value.layers);
    fill($("head"), value.heads);
    choose(0, 0);
  }
  $("about-attention").textContent = value.levels === 2
    ? "Each cell is one bit: whether a token (row) attends to another (column)."
    : `Each cell is a weight of ${Math.log2(value.levels)} bits: how much a token (row) attends to another (column).`;
  draw();
}

function fill(select, count) {
  select.replaceChildren();
  for (let i = 0; i < count; i++) make("option", select, String(i));
}

function choose(layer, head) {
  state.layer = Math.max(0, Math.min(state.look.layers - 1, layer));
  state.head = Math.max(0, Math.min(state.look.heads - 1, head));
  $("layer").value = state.layer;
  $("head").value = state.head;
  draw();
}

function colourOf(name) {
  const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((place) => parseInt(hex.slice(place, place + 2), 16));
}

function sized(canvas, height) {
  const scale = window.devicePixelRatio || 1;
  canvas.style.height = `${height}px`;
  canvas.width = Math.round(canvas.clientWidth * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  return context;
}

function drawHead(context, layer, head, x, y, size) {
  const { tokens, heads, levels, bytes } = state.look;
  const T = tokens.length;
  const from = colourOf("--none");
  const to = colourOf("--most");
  const image = new ImageData(T, T);
  const start = (layer * heads + head) * T * T;
  for (let i = 0; i < T * T; i++) {
    const share = bytes[start + i] / (levels - 1);
    for (let c = 0; c < 3; c++) image.data[4 * i + c] = from[c] + (to[c] - from[c]) * share;
    image.data[4 * i + 3] = 255;
  }
  const small = document.createElement("canvas");
  small.width = small.height = T;
  small.getContext("2d").putImageData(image, 0, 0);
  context.imageSmoothingEnabled = size < T;
  context.drawImage(small, x, y, size, size);
}

function draw() {
  if (!state.look) return;
  const { layers, heads, tokens } = state.look;
  const style = getComputedStyle(document.documentElement);
  const step = $("overview").clientWidth / heads;
  const overview = sized($("overview"), step * layers);
  for (let layer = 0; layer < layers; layer++) {
    for (let head = 0; head < heads; head++) drawHead(overview, layer, head, head * step + 1.5, layer * step + 1.5, step - 3);
  }
  overview.strokeStyle = style.getPropertyValue("--accent");
  overview.lineWidth = 2;
  overview.strokeRect(state.head * step + 0.5, state.layer * step + 0.5, step - 1, step - 1);

  const T = tokens.length;
  const width = $("large").clientWidth;
  const margin = T <= 40 ? Math.min(90, width / 4) : 0;
  const cell = Math.min((width - margin) / T, 34);
  const large = sized($("large"), margin + cell * T);
  drawHead(large, state.layer, state.head, margin, margin, cell * T);
  state.large = { margin, cell };
  if (!margin) return;
  large.fillStyle = style.getPropertyValue("--faint");
  large.font = `${Math.max(9, Math.min(13, cell * 0.75))}px system-ui, sans-serif`;
  large.textBaseline = "middle";
  tokens.forEach((token, i) => {
    const middle = margin + cell * (i + 0.5);
    large.textAlign = "right";
    large.fillText(token, margin - 6, middle, margin - 8);
    large.save();
    large.translate(middle, margin - 6);
    large.rotate(-Math.PI / 2);
    large.textAlign = "left";
    large.fillText(token, 0, 0, margin - 8);
    large.restore();
  });
}

function readCell(event) {
  if (!state.look) return;
  const { margin, cell } = state.large;
  const { tokens, heads, bytes } = state.look;
  const [key, query] = [event.offsetX, event.offsetY].map((place) => Math.floor((place - margin) / cell));
  if (!(tokens[query] && tokens[key])) return;
  const weight = bytes[((state.layer * heads + state.head) * tokens.length + query) * tokens.length + key];
  $("reading").textContent = `${tokens[query]} → ${tokens[key]}: ${weight}`;
}

// Many lines.

async function labelLines() {
  const lines = $("lines").value.split(/\r?\n/).filter((line) => line.trim());
  state.table = lines.map((line) => [line]);
  $("run").disabled = true;
  $("download").disabled = true;
  const start = performance.now();
  try {
    for (let first = 0; first < lines.length; first += state.batch) {
      const inputs = lines.slice(first, first + state.batch).map((line) => [line]);
      for (const name of state.names) {
        const { value } = await ask(modelPath(name, "predict"), { inputs });
        value.forEach((answer, i) => state.table[first + i].push(answer[0].label, answer[0].score));
      }
      const done = Math.min(lines.length, first + state.batch);
      const seconds = (performance.now() - start) / 1000;
      $("progress").textContent = `${done} of ${lines.length} lines in ${seconds.toFixed(1)} s`;
    }
    complain(null);
    $("download").disabled = !lines.length;
  } catch (error) {
    complain(error);
  }
  $("run").disabled = false;
  showTable();
}

const columns = () => ["text", ...state.names.flatMap((name) => [`${name} label`, `${name} score`])];

function showTable() {
  const [head, body] = ["thead", "tbody"].map((kind) => document.querySelector(`#rows ${kind}`));
  head.replaceChildren();
  body.replaceChildren();
  const title = make("tr", head);
  columns().forEach((name) => make("th", title, name));
  for (const cells of state.table.slice(0, MOST_ROWS)) {
    const row = make("tr", body);
    cells.forEach((cell) => make("td", row, typeof cell === "number" ? cell.toFixed(3) : cell));
  }
  $("rows").hidden = !state.table.length;
}

function csv() {
  // A cell that a spreadsheet would take for a formula starts with an apostrophe.
  const cell = (value) => {
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns(), ...state.table].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

function download() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([csv()], { type: "text/csv" }));
  link.download = "labels.csv";
  link.click();
  URL.revokeObjectURL(link.href);
}

// Start, and what the reader does.

async function start() {
  try {
    const { value } = await ask("info");
    state.names = value.models;
    state.batch = value.max_client_batch_size;
    for (const name of state.names) state.infos[name] = (await ask(modelPath(name, "info"))).value;
    $("models").replaceChildren();
    $("model").replaceChildren();
    for (const name of state.names) {
      state.cards[name] = makeCard(name);
      make("option", $("model"), name);
    }
    $("key").hidden = true;
    await classify();
  } catch (error) {
    complain(error);
  }
}

let pause = 0;
$("text").addEventListener("input", () => {
  clearTimeout(pause);
  pause = setTimeout(classify, PAUSE);
});
$("model").addEventListener("change", () => {
  state.look = null;
  classify();
});
for (const id of ["layer", "head"]) $(id).addEventListener("change", () => choose(+$("layer").value, +$("head").value));
$("overview").addEventListener("click", ({ offsetX, offsetY }) => {
  if (!state.look) return;
  const step = $("overview").clientWidth / state.look.heads;
  choose(Math.floor(offsetY / step), Math.floor(offsetX / step));
});
$("overview").addEventListener("keydown", (event) => {
  const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  if (!state.look || !(event.key in moves)) return;
  event.preventDefault();
  choose(state.layer + moves[event.key][0], state.head + moves[event.key][1]);
});
$("large").addEventListener("pointermove", readCell);
$("large").addEventListener("pointerdown", readCell);
$("run").addEventListener("click", labelLines);
$("download").addEventListener("click", download);
$("key").addEventListener("submit", (event) => {
  event.preventDefault();
  state.key = $("secret").value;
  start();
});
window.addEventListener("resize", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
start();
