"use strict";
// What the views of attention.js draw with: the data of the page, its colours, and canvases.

const { tokens, layer, head, models } = JSON.parse(document.getElementById("attention").textContent);
const T = tokens.length;
const chosen = { layer, head };
let colours = null;  // 256 of them, from no weight to the largest

// Data: every model gets one byte per weight, 255 for the largest of its head or for a bit of 1.

function bytesOf(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

function levelsOf(model) {
  const bytes = bytesOf(model.levels);
  if (!model.isBits) return bytes;
  const levels = new Uint8Array(model.layers * model.heads * T * T);
  for (let i = 0; i < levels.length; i++) levels[i] = (bytes[i >> 3] >> (7 - (i & 7))) & 1 ? 255 : 0;
  return levels;
}

function hasHead(model, layer, head) {
  return layer >= 0 && head >= 0 && layer < model.layers && head < model.heads;
}

function headOf(model, layer, head) {
  const start = (layer * model.heads + head) * T * T;
  return model.bytes.subarray(start, start + T * T);
}

function weightText(model, query, key) {
  const level = headOf(model, chosen.layer, chosen.head)[query * T + key];
  if (model.isBits) return level ? "1" : "0";
  const largest = model.largest[chosen.layer * model.heads + chosen.head];
  const digits = Math.max(2, Math.floor(-Math.log10(largest / 255)));  // as many as a byte can tell
  return (largest * level / 255).toFixed(digits);
}

// Colours and canvases.

function cssColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function readColours() {
  const stops = ["none", "some", "most"].map((name) => {
    const hex = cssColour(`--weight-${name}`);
    return [1, 3, 5].map((place) => parseInt(hex.slice(place, place + 2), 16));
  });
  colours = new Uint8ClampedArray(4 * 256);
  for (let level = 0; level < 256; level++) {
    const place = level / 127.5;
    const from = Math.min(1, Math.floor(place));
    for (let c = 0; c < 3; c++) {
      colours[4 * level + c] = stops[from][c] + (stops[from + 1][c] - stops[from][c]) * (place - from);
    }
    colours[4 * level + 3] = 255;
  }
}

const scratch = document.createElement("canvas");
scratch.width = scratch.height = T;
const scratchContext = scratch.getContext("2d", { willReadFrequently: true });
const scratchImage = scratchContext.createImageData(T, T);
const scratchPixels = new Uint32Array(scratchImage.data.buffer);

function drawLevels(context, levels, x, y, size) {
  const side = Math.sqrt(levels.length);
  const table = new Uint32Array(colours.buffer);
  for (let row = 0, i = 0; row < side; row++) {
    for (let column = 0; column < side; column++, i++) scratchPixels[row * T + column] = table[levels[i]];
  }
  scratchContext.putImageData(scratchImage, 0, 0, 0, 0, side, side);
  context.imageSmoothingEnabled = size * pixelRatio() < side;  // cells stay sharp, unless there are more than pixels
  context.imageSmoothingQuality = "high";
  context.drawImage(scratch, 0, 0, side, side, x, y, size, size);
}

// Means over blocks of tokens, for an image with fewer pixels than tokens. Weights are divided by the largest mean:
// a diagonal would fade away otherwise. The mean of bits stays what it is.
function shrunk(levels, block, isBits) {
  if (block < 2) return levels;
  const side = Math.ceil(T / block);
  const sums = new Float32Array(side * side);
  for (let query = 0; query < T; query++) {
    const start = Math.floor(query / block) * side;
    for (let key = 0; key < T; key++) sums[start + Math.floor(key / block)] += levels[query * T + key];
  }
  const width = (place) => Math.min(block, T - place * block);
  const means = sums.map((sum, i) => sum / (width(Math.floor(i / side)) * width(i % side)));
  const largest = isBits ? 255 : means.reduce((most, mean) => Math.max(most, mean));
  return Uint8Array.from(means, (mean) => Math.round(255 * mean / largest));
}

function pixelRatio() {
  return window.devicePixelRatio || 1;
}

function sized(canvas, width, height) {
  const scale = pixelRatio();
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = cssColour("--faint");
  context.textBaseline = "middle";
  return context;
}

function element(kind, parent, className = "") {
  const made = document.createElement(kind);
  made.className = className;
  parent.append(made);
  return made;
}

function place(mark, x, y, width, height) {
  mark.style.transform = `translate(${x}px, ${y}px)`;
  mark.style.width = `${width}px`;
  mark.style.height = `${height}px`;
}

function shortened(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > width) end--;
  return `${text.slice(0, end)}…`;
}
