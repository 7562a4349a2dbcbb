// The demo page in Chromium: it labels a text while it is typed, shows attention, asks no other host, and works with
// the server stopped. Needs build/demo, from `make demo`, and Chromium. BIBERT_SHOTS names a folder for screenshots.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { extname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { load } from "../dist/index.js";
import { Chromium, PROGRAM } from "./chromium.mjs";

const FOLDER = fileURLToPath(new URL("../../build/demo/", import.meta.url));
const MODELS = new URL("../../src/bibert/models/", import.meta.url);
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm" };
const skip = (!existsSync(join(FOLDER, "sw.js")) || !PROGRAM) && "needs build/demo, from make demo, and Chromium";
const READY = "document.documentElement.dataset.ready === 'true'";

async function serve() {
  const server = createServer(async (request, response) => {
    const { pathname } = new URL(request.url, "http://localhost");
    const file = pathname.endsWith("/") ? `${pathname}index.html` : pathname;
    const bytes = await readFile(join(FOLDER, file)).catch(() => null);
    response.writeHead(bytes ? 200 : 404, { "Content-Type": TYPES[extname(file)] ?? "application/octet-stream" });
    response.end(bytes);
  });
  await new Promise((done) => server.listen(0, "localhost", done));
  const stop = () => new Promise((done) => {
    server.close(done);
    server.closeAllConnections();
  });
  return { url: `http://localhost:${server.address().port}/`, stop };
}

const type = (text) => `(() => {
  const area = document.getElementById("text");
  area.value = ${JSON.stringify(text)};
  area.dispatchEvent(new Event("input"));
})()`;
const SHOWN = "[...document.querySelectorAll('.model')].map((card) => card.querySelector('.best').textContent)";

async function shoot(page, name) {
  const folder = process.env.BIBERT_SHOTS;
  if (!folder) return;
  const { data } = await page.send("Page.captureScreenshot", { captureBeyondViewport: true });
  await writeFile(join(folder, `${name}.png`), Buffer.from(data, "base64"));
}

test("the page labels what is typed, and works with the server stopped", { skip }, async () => {
  const server = await serve();
  const browser = await Chromium.start();
  try {
    const page = await browser.open(server.url);
    await page.until(READY);
    assert.equal((await page.evaluate(SHOWN)).join(), "positive,positive,positive");
    assert.match(await page.evaluate("document.getElementById('download').textContent"), /^Download: \d\.\d MB/);
    await page.evaluate(type("Dull, lifeless and far too long."));
    await page.until(`${SHOWN}.join() === "negative,negative,negative"`);
    const first = (await load(new URL("sst2.bibert", MODELS))).probabilities(["Dull, lifeless and far too long."])[0];
    const shown = "[...document.querySelector('.scores').children].map((row) => row.lastChild.textContent)";
    assert.deepEqual(await page.evaluate(shown), first.map((score) => `${(100 * score).toFixed(1)} %`));
    assert.match(await page.evaluate("document.querySelector('.model .note').textContent"), /^\d+\.\d ms/);
    assert(page.requests.every((address) => address.startsWith(server.url) || address.startsWith("data:")));
    assert.deepEqual(page.complaints, []);

    await server.stop();
    await page.evaluate("delete document.documentElement.dataset.ready");
    await page.go();
    await page.until(READY);
    await page.evaluate(type("A wonderful surprise."));
    await page.until(`${SHOWN}.join() === "positive,positive,positive"`);
    assert.match(await page.evaluate("document.getElementById('download').textContent"), /nothing was downloaded/);
    assert.deepEqual(page.complaints, []);
  } finally {
    await browser.close();
    await server.stop().catch(() => {});
  }
});

test("attention follows the keyboard and the model, on any screen and in both colour schemes", { skip }, async () => {
  const server = await serve();
  const browser = await Chromium.start();
  try {
    for (const [width, dark] of [[1440, false], [1440, true], [390, false], [390, true]]) {
      const page = await browser.open(server.url, { width, dark });
      await page.until(READY);
      await page.until("document.getElementById('layer').length === 6");
      const key = (id, name) => page.evaluate(
        `document.getElementById("${id}").dispatchEvent(new KeyboardEvent("keydown", { key: "${name}" }))`,
      );
      await key("overview", "ArrowDown");
      await key("overview", "ArrowRight");
      assert.equal(await page.evaluate("document.getElementById('layer').value + document.getElementById('head').value"), "11");
      await key("large", "ArrowRight");
      assert.match(await page.evaluate("document.getElementById('reading').textContent"), /^\[CLS\] → a: [01] of 1$/);
      await page.evaluate(`(() => {
        const select = document.getElementById("model");
        select.value = "sentiment_4";
        select.dispatchEvent(new Event("change"));
      })()`);
      await page.until("document.getElementById('about-attention').textContent.includes('weight of 4 bits')");
      assert.match(await page.evaluate("document.getElementById('reading').textContent"), /^\[CLS\] → a: \d+ of 15$/);
      assert.equal(await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), true);
      assert.deepEqual(page.complaints, []);
      await shoot(page, `${width}-${dark ? "dark" : "light"}`);
    }
  } finally {
    await browser.close();
    await server.stop();
  }
});
