// A headless Chromium for tests of pages: the DevTools protocol over two pipes, as tests/chromium.py does in Python.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

const FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-sync", "--disable-background-networking",
  "--disable-component-update", "--no-first-run", "--remote-debugging-pipe",
];
export const PROGRAM = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);

export class Chromium {
  #process;
  #profile;
  #number = 0;
  #waiting = new Map();
  #onEvent = () => {};

  static async start() {
    const browser = new Chromium();
    browser.#profile = await mkdtemp(join(tmpdir(), "bibert-chromium-"));
    const words = [...FLAGS, `--user-data-dir=${browser.#profile}`, "about:blank"];
    browser.#process = spawn(PROGRAM, words, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    let unread = "";
    browser.#process.stdio[4].setEncoding("utf8").on("data", (chunk) => {
      const messages = (unread + chunk).split("\0");
      unread = messages.pop();
      for (const message of messages) browser.#receive(JSON.parse(message));
    });
    return browser;
  }

  #receive(message) {
    if (message.id === undefined) return this.#onEvent(message);
    const { resolve, reject } = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    if (message.error === undefined) resolve(message.result);
    else reject(new Error(message.error.message));
  }

  send(method, params = {}, sessionId = undefined) {
    const id = ++this.#number;
    this.#process.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    return new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
  }

  /** A page of this size; `complaints` and `requests` fill while it is open. */
  async open(url, { width = 1280, height = 900, dark = false } = {}) {
    const { targetId } = await this.send("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
    const send = (method, params) => this.send(method, params, sessionId);
    const page = { send, complaints: [], requests: [] };
    this.#onEvent = ({ method, params, sessionId: session }) => {
      if (session !== sessionId) return;
      if (method === "Runtime.exceptionThrown") page.complaints.push(params.exceptionDetails.text);
      if (method === "Log.entryAdded" && params.entry.level !== "info") page.complaints.push(params.entry.text);
      if (method === "Runtime.consoleAPICalled" && params.type !== "log") page.complaints.push(JSON.stringify(params.args));
      if (method === "Network.requestWillBeSent") page.requests.push(params.request.url);
    };
    for (const domain of ["Page", "Runtime", "Log", "Network"]) await send(`${domain}.enable`);
    await send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 500 });
    const scheme = { name: "prefers-color-scheme", value: dark ? "dark" : "light" };
    await send("Emulation.setEmulatedMedia", { features: [scheme] });
    page.go = () => send("Page.navigate", { url });
    page.evaluate = async (expression) => {
      const answer = await send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
      if (answer.exceptionDetails) throw new Error(answer.exceptionDetails.exception?.description ?? expression);
      return answer.result.value;
    };
    /** Waits until an expression is true. */
    page.until = async (expression, seconds = 120) => {
      for (const end = Date.now() + 1000 * seconds; Date.now() < end; ) {
        if (await page.evaluate(expression).catch(() => false)) return;
        await new Promise((done) => setTimeout(done, 100));
      }
      throw new Error(`not true in ${seconds} s: ${expression}; ${page.complaints.join("; ")}`);
    };
    await page.go();
    return page;
  }

  async close() {
    const ended = new Promise((done) => this.#process.once("exit", done));
    await this.send("Browser.close");
    await ended;
    await rm(this.#profile, { recursive: true, force: true, maxRetries: 5 });
  }
}
