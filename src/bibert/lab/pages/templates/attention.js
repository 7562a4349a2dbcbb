// The attention page. Small images are drawn when the page opens and when its width or theme changes. Choosing a head
// draws that head in every model; pointing at a cell moves two bands and writes a line of text.
// Data, colours and canvases are in attention-canvas.js.

const MOST_LINES = 32;      // tokens up to which a head is also shown as lines
const SMALLEST_LABEL = 9;   // pixels of a cell with room for its token
const LABELS = 18;          // pixels beside the small images, for layer and head numbers
const POINT = matchMedia("(pointer: coarse)").matches ? "Tap a cell, or slide over them," : "Point at a cell";
const HINT = `Rows are queries, columns keys. ${POINT} for its tokens and its weight in every model.`;

// All heads of a model, small.

class Overview {
  constructor(model, parent) {
    this.model = model;
    const panel = element("div", parent, "panel");
    element("h3", panel).textContent = model.title;
    const kind = element("p", panel, "note");
    if (model.answer) element("strong", kind).textContent = `${model.answer} · `;
    kind.append(`${model.layers} layers × ${model.heads} heads, ${model.isBits ? "bits" : "weights"}`);
    this.frame = element("div", panel, "frame");
    this.canvas = element("canvas", this.frame);
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", `heads of ${model.title}; arrow keys choose one`);
    this.mark = element("div", this.frame, "mark chosen");
    this.canvas.addEventListener("click", (event) => this.click(event));
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("keydown", (event) => moveByKey(event, (down, right) => {
      choose(chosen.layer + down, chosen.head + right);
    }));
  }

  draw() {
    const { layers, heads } = this.model;
    const width = this.frame.clientWidth;
    this.step = Math.max(4, Math.floor((width - LABELS) / heads));
    this.size = this.step - Math.max(1, Math.round(this.step / 14));
    const context = sized(this.canvas, width, LABELS + this.step * layers);
    const block = Math.ceil(T / (this.size * pixelRatio()));
    for (let layer = 0; layer < layers; layer++) {
      context.textAlign = "right";
      context.fillText(layer, LABELS - 5, LABELS + this.step * layer + this.size / 2);
      for (let head = 0; head < heads; head++) {
        const levels = shrunk(headOf(this.model, layer, head), block, this.model.isBits);
        drawLevels(context, levels, ...this.corner(layer, head), this.size);
      }
    }
    context.textAlign = "center";
    for (let head = 0; head < heads; head++) {
      context.fillText(head, LABELS + this.step * head + this.size / 2, LABELS / 2);
    }
    context.strokeStyle = cssColour("--line");
    context.lineWidth = 1;
    for (let layer = 0; layer < layers; layer++) {
      for (let head = 0; head < heads; head++) context.strokeRect(...this.corner(layer, head), this.size, this.size);
    }
  }

  corner(layer, head) {
    return [LABELS + this.step * head, LABELS + this.step * layer];
  }

  at(event) {
    return [Math.floor((event.offsetY - LABELS) / this.step), Math.floor((event.offsetX - LABELS) / this.step)];
  }

  hover(event) {
    const [layer, head] = this.at(event);
    this.canvas.title = hasHead(this.model, layer, head) ? `layer ${layer}, head ${head}` : "";
  }

  click(event) {
    const [layer, head] = this.at(event);
    if (hasHead(this.model, layer, head)) choose(layer, head);
  }

  choose() {
    this.mark.hidden = !hasHead(this.model, chosen.layer, chosen.head);
    place(this.mark, ...this.corner(chosen.layer, chosen.head), this.size, this.size);
  }
}

// One head of a model, large: a matrix, and lines where there are few tokens.

class Large {
  constructor(model, parent) {
    this.model = model;
    this.panel = element("div", parent, "panel");
    element("h3", this.panel).textContent = model.title;
    this.missing = element("p", this.panel, "note");
    this.frame = element("div", this.panel, "frame");
    this.canvas = element("canvas", this.frame);
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", `attention of ${model.title}; arrow keys move between cells`);
    this.row = element("div", this.frame, "mark band");
    this.column = element("div", this.frame, "mark band");
    for (const kind of ["pointermove", "pointerdown"]) {
      this.canvas.addEventListener(kind, (event) => point(...this.at(event)));
    }
    this.canvas.addEventListener("pointerleave", leave);
    this.canvas.addEventListener("keydown", (event) => moveByKey(event, (down, right) => {
      point(between(pointed.query + down, T), between(pointed.key + right, T));
    }));
    this.lines = T <= MOST_LINES ? new Lines(this) : null;
  }

  get exists() {
    return hasHead(this.model, chosen.layer, chosen.head);
  }

  draw() {
    const width = this.frame.clientWidth;
    const context = sized(this.canvas, width, 0);
    context.font = "12px system-ui, sans-serif";
    const widest = Math.min(0.3 * width, Math.max(...tokens.map((token) => context.measureText(token).width)) + 8);
    this.labels = (width - widest) / T >= SMALLEST_LABEL ? widest : 0;
    this.cell = (width - this.labels) / T;
    this.context = sized(this.canvas, width, width);
    if (this.lines) this.lines.draw();
  }

  drawChosen() {
    const { context, labels, cell } = this;
    const size = cell * T;
    context.clearRect(0, 0, labels + size, labels + size);
    this.missing.textContent = this.exists ? "" : `has no head ${chosen.head} in layer ${chosen.layer}`;
    if (!this.exists) return;
    drawLevels(context, headOf(this.model, chosen.layer, chosen.head), labels, labels, size);
    context.strokeStyle = cssColour("--line");
    context.strokeRect(labels, labels, size - 0.5, size - 0.5);
    if (labels) this.drawLabels();
  }

  drawLabels() {
    const { context, labels, cell } = this;
    context.font = `${Math.min(12, cell)}px system-ui, sans-serif`;
    context.fillStyle = cssColour("--ink");
    tokens.forEach((token, i) => {
      const word = shortened(context, token, labels - 6);
      const middle = labels + cell * (i + 0.5);
      context.textAlign = "right";
      context.fillText(word, labels - 4, middle);
      context.save();
      context.translate(middle, labels - 4);
      context.rotate(-Math.PI / 2);
      context.textAlign = "left";
      context.fillText(word, 0, 0);
      context.restore();
    });
  }

  at(event) {
    const query = Math.floor((event.offsetY - this.labels) / this.cell);
    const key = Math.floor((event.offsetX - this.labels) / this.cell);
    return query >= 0 && key >= 0 && query < T && key < T ? [query, key] : [-1, -1];
  }

  point(query, key) {
    const { labels, cell } = this;
    const away = query < 0 || !this.exists;
    this.row.hidden = this.column.hidden = away;
    if (!away) {
      const thick = Math.max(cell, 2);
      place(this.row, 0, labels + cell * query, labels + cell * T, thick);
      place(this.column, labels + cell * key, 0, thick, labels + cell * T);
    }
    if (this.lines) this.lines.point(query);
  }
}

class Lines {
  constructor(large) {
    this.large = large;
    this.frame = element("div", large.panel, "frame lines");
    this.canvas = element("canvas", this.frame);
    this.query = -1;
    for (const kind of ["pointermove", "pointerdown"]) {
      this.canvas.addEventListener(kind, (event) => {
        const query = between(Math.floor(event.offsetY / this.step), T);
        if (large.exists) point(query, strongest(large.model, query));
      });
    }
    this.canvas.addEventListener("pointerleave", leave);
  }

  draw() {
    this.step = 18;
    this.width = this.frame.clientWidth;
    this.context = sized(this.canvas, this.width, this.step * T);
    this.painted = null;
  }

  point(query) {
    const wanted = `${chosen.layer} ${chosen.head} ${query}`;
    if (wanted === this.painted) return;
    this.painted = wanted;
    this.query = query;
    this.paint();
  }

  paint() {
    const { context, width, step } = this;
    context.font = "12px system-ui, sans-serif";
    const room = Math.min(0.38 * width, Math.max(...tokens.map((token) => context.measureText(token).width)) + 12);
    const levels = headOf(this.large.model, chosen.layer, chosen.head);
    context.clearRect(0, 0, width, step * T);
    if (!this.large.exists) return;
    context.strokeStyle = cssColour("--accent");
    for (let query = 0; query < T; query++) {
      if (this.query >= 0 && query !== this.query) continue;
      for (let key = 0; key < T; key++) this.line(levels[query * T + key] / 255, query, key, room);
    }
    context.globalAlpha = 1;
    context.font = "12px system-ui, sans-serif";
    context.fillStyle = cssColour("--ink");
    tokens.forEach((token, i) => {
      const word = shortened(context, token, room - 8);
      context.globalAlpha = this.query < 0 || this.query === i ? 1 : 0.5;
      context.textAlign = "right";
      context.fillText(word, room - 6, step * (i + 0.5));
      context.globalAlpha = 1;
      context.textAlign = "left";
      context.fillText(word, width - room + 6, step * (i + 0.5));
    });
  }

  line(strength, query, key, room) {
    if (strength < 0.02) return;
    const { context, width, step } = this;
    const bits = this.large.model.isBits;
    context.globalAlpha = bits && this.query < 0 ? 0.4 : strength;
    context.lineWidth = bits ? 1 : 0.5 + 2 * strength;
    context.beginPath();
    context.moveTo(room, step * (query + 0.5));
    context.lineTo(width - room, step * (key + 0.5));
    context.stroke();
  }
}

function strongest(model, query) {
  const row = headOf(model, chosen.layer, chosen.head).subarray(query * T, (query + 1) * T);
  return row.indexOf(Math.max(...row));
}

// User actions, which apply to all models.

const pointed = { query: -1, key: -1 };

function between(number, count) {
  return Math.min(count - 1, Math.max(0, number));
}

function moveByKey(event, move) {
  const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  if (!(event.key in steps)) return;
  event.preventDefault();
  move(...steps[event.key]);
}

function choose(layer, head) {
  chosen.layer = between(layer, Math.max(...models.map((model) => model.layers)));
  chosen.head = between(head, Math.max(...models.map((model) => model.heads)));
  document.getElementById("chosen").textContent = `Layer ${chosen.layer}, head ${chosen.head}`;
  for (const overview of overviews) overview.choose();
  for (const large of larges) large.drawChosen();
  point(pointed.query, pointed.key);
}

function point(query, key) {
  pointed.query = query;
  pointed.key = key;
  for (const large of larges) large.point(query, key);
  document.getElementById("reading").textContent = query < 0 ? HINT : readingOf(query, key);
}

function leave(event) {
  if (event.pointerType === "mouse") point(-1, -1);  // a touched cell stays selected
}

function readingOf(query, key) {
  const having = models.filter((model) => hasHead(model, chosen.layer, chosen.head));
  const weights = having.map((model) => `${model.title} ${weightText(model, query, key)}`);
  return `${tokens[query]} → ${tokens[key]}: ${weights.join(", ")}`;
}

let drawnWidth = 0;

function drawAll() {
  drawnWidth = panels.clientWidth;
  readColours();
  for (const overview of overviews) overview.draw();
  for (const large of larges) large.draw();
  choose(chosen.layer, chosen.head);
}

for (const button of document.querySelectorAll("button[data-down]")) {
  const { down, right } = button.dataset;
  button.addEventListener("click", () => choose(chosen.layer + Number(down), chosen.head + Number(right)));
}
for (const model of models) model.bytes = levelsOf(model);
const panels = document.getElementById("models");
const overviews = models.map((model) => new Overview(model, panels));
const larges = models.map((model) => new Large(model, document.getElementById("heads")));
drawAll();
performance.mark("attention-drawn");

document.addEventListener("themechange", drawAll);
new ResizeObserver(() => requestAnimationFrame(() => {
  if (panels.clientWidth !== drawnWidth) drawAll();
})).observe(panels);
