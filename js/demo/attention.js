// Attention of a text on two canvases: every head small, the chosen one large with its tokens.

const MOST_TOKENS = 40; // with names at the edges

export class AttentionView {
  #overview;
  #large;
  #onChoose;
  #onRead;
  #look = null;
  #place = { margin: 0, cell: 1 };
  #cell = null; // query and key, once one was read
  layer = 0;
  head = 0;

  /** `onChoose()` is called when another head is chosen, `onRead(text)` when a cell is. */
  constructor(overview, large, onChoose, onRead) {
    this.#overview = overview;
    this.#large = large;
    this.#onChoose = onChoose;
    this.#onRead = onRead;
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const onArrow = (canvas, move) => canvas.addEventListener("keydown", (event) => {
      if (!this.#look || !(event.key in moves)) return;
      event.preventDefault();
      move(...moves[event.key]);
    });
    onArrow(overview, (down, right) => this.choose(this.layer + down, this.head + right));
    onArrow(large, (down, right) => {
      const [query, key] = this.#cell ?? [0, 0];
      this.#read(query + down, key + right);
    });
    overview.addEventListener("click", ({ offsetX, offsetY }) => {
      if (!this.#look) return;
      const step = overview.clientWidth / this.#look.heads;
      this.choose(Math.floor(offsetY / step), Math.floor(offsetX / step));
    });
    for (const kind of ["pointermove", "pointerdown"]) {
      large.addEventListener(kind, ({ offsetX, offsetY }) => {
        const { margin, cell } = this.#place;
        if (Math.min(offsetX, offsetY) >= margin) this.#read(...[offsetY, offsetX].map((at) => Math.floor((at - margin) / cell)));
      });
    }
    window.addEventListener("resize", () => this.draw());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** Shows what `Classifier.attention` gives. */
  show(look) {
    this.#look = look;
    this.choose(this.layer, this.head);
  }

  choose(layer, head) {
    const within = (value, count) => Math.max(0, Math.min(count - 1, value));
    this.layer = within(layer, this.#look.layers);
    this.head = within(head, this.#look.heads);
    this.#onChoose();
    if (this.#cell) this.#read(...this.#cell.map((place) => within(place, this.#look.tokens.length)));
    this.draw();
  }

  #read(query, key) {
    const { tokens, heads, levels, weights } = this.#look ?? { tokens: [] };
    if (tokens[query] === undefined || tokens[key] === undefined) return;
    this.#cell = [query, key];
    const weight = weights[((this.layer * heads + this.head) * tokens.length + query) * tokens.length + key];
    this.#onRead(`${tokens[query]} → ${tokens[key]}: ${weight} of ${levels - 1}`);
  }

  draw() {
    if (!this.#look) return;
    const { layers, heads, tokens } = this.#look;
    const style = getComputedStyle(document.documentElement);
    const step = this.#overview.clientWidth / heads;
    const small = sized(this.#overview, step * layers);
    for (let layer = 0; layer < layers; layer++) {
      for (let head = 0; head < heads; head++) {
        this.#drawHead(small, layer, head, head * step + 1.5, layer * step + 1.5, step - 3);
      }
    }
    small.strokeStyle = style.getPropertyValue("--accent");
    small.lineWidth = 2;
    small.strokeRect(this.head * step + 1, this.layer * step + 1, step - 2, step - 2);

    const width = this.#large.clientWidth;
    const margin = tokens.length <= MOST_TOKENS ? Math.min(90, width / 4) : 0;
    const cell = Math.min((width - margin) / tokens.length, 34);
    const large = sized(this.#large, margin + cell * tokens.length);
    this.#drawHead(large, this.layer, this.head, margin, margin, cell * tokens.length);
    this.#place = { margin, cell };
    if (margin) drawTokens(large, tokens, margin, cell, style.getPropertyValue("--faint"));
  }

  #drawHead(context, layer, head, x, y, size) {
    const { tokens, heads, levels, weights } = this.#look;
    const count = tokens.length;
    const [from, to] = [colourOf("--none"), colourOf("--most")];
    const image = new ImageData(count, count);
    const start = (layer * heads + head) * count * count;
    for (let i = 0; i < count * count; i++) {
      const share = weights[start + i] / (levels - 1);
      for (let c = 0; c < 3; c++) image.data[4 * i + c] = from[c] + (to[c] - from[c]) * share;
      image.data[4 * i + 3] = 255;
    }
    const drawn = document.createElement("canvas");
    drawn.width = drawn.height = count;
    drawn.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = size < count;
    context.drawImage(drawn, x, y, size, size);
  }
}

function drawTokens(context, tokens, margin, cell, colour) {
  context.fillStyle = colour;
  context.font = `${Math.max(9, Math.min(13, cell * 0.75))}px system-ui, sans-serif`;
  context.textBaseline = "middle";
  tokens.forEach((token, i) => {
    const middle = margin + cell * (i + 0.5);
    context.textAlign = "right";
    context.fillText(token, margin - 6, middle, margin - 8);
    context.save();
    context.translate(middle, margin - 6);
    context.rotate(-Math.PI / 2);
    context.textAlign = "left";
    context.fillText(token, 0, 0, margin - 8);
    context.restore();
  });
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
