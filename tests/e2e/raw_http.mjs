// HTTP on a bare socket, for what clients hide: every byte of a request is given, every byte of a response is looked at.
import net from "node:net";
import { once } from "node:events";

export class RawHttp {
  #bytes = Buffer.alloc(0);
  #ended = false;

  constructor(url) {
    const { hostname, port, host } = new URL(url);
    this.host = host;
    this.socket = net.connect({ host: hostname, port, allowHalfOpen: true });
    this.socket.on("data", (piece) => (this.#bytes = Buffer.concat([this.#bytes, piece])));
    this.socket.on("end", () => (this.#ended = true));
    this.socket.on("error", () => (this.#ended = true));
    this.socket.setTimeout(60_000, () => this.socket.destroy(new Error("a minute of silence")));
  }

  // One connection for the time of `use`.
  static async with(url, use) {
    const raw = new RawHttp(url);
    try {
      return await use(raw);
    } finally {
      raw.socket.destroy();
    }
  }

  send(bytes) {
    this.socket.write(bytes);
    return this;
  }

  // A request in one piece. headers: an array of lines; a body gets its length unless a line tells it.
  request(method, target, { headers = [], body = "", version = "1.1" } = {}) {
    const lines = [`${method} ${target} HTTP/${version}`, `Host: ${this.host}`, ...headers];
    if (body !== "" && !headers.some((line) => /^(content-length|transfer-encoding):/i.test(line))) lines.push(`Content-Length: ${Buffer.byteLength(body)}`);
    return this.send(`${lines.join("\r\n")}\r\n\r\n${body}`);
  }

  post(target, body, fields = {}) {
    const headers = ["Content-Type: application/json", ...(fields.headers ?? [])];
    return this.request("POST", target, { ...fields, headers, body: typeof body === "string" ? body : JSON.stringify(body) });
  }

  // The next response; a body without length ends with the connection. `raw` has the chunks of a chunked body one by one.
  async response({ head = false } = {}) {
    const [statusLine, ...lines] = (await this.#until("\r\n\r\n")).split("\r\n");
    const match = /^HTTP\/1\.[01] (\d{3})/.exec(statusLine);
    if (!match) throw new Error(`no status line: ${statusLine}`);
    const headers = new Map();
    for (const line of lines) {
      const colon = line.indexOf(":");
      headers.set(line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim());
    }
    const status = Number(match[1]);
    const chunks = head || status === 204 || status < 200 ? [] : await this.#body(headers);
    const body = Buffer.concat(chunks).toString();
    return { status, version: statusLine.slice(5, 8), headers, chunks: chunks.map(String), body, json: () => JSON.parse(body) };
  }

  async #body(headers) {
    if (headers.get("transfer-encoding") === "chunked") {
      const chunks = [];
      for (;;) {
        const size = parseInt(await this.#until("\r\n"), 16);
        const piece = await this.#take(size + 2);
        if (size === 0) return chunks;
        chunks.push(piece.subarray(0, size));
      }
    }
    if (headers.has("content-length")) return [await this.#take(Number(headers.get("content-length")))];
    await this.ended();
    const rest = this.#bytes;
    this.#bytes = Buffer.alloc(0);
    return [rest];
  }

  // Waits for the other side to close; false if anything came before.
  async ended() {
    while (!this.#ended) await this.#more();
    return this.#bytes.length === 0;
  }

  // Bytes that have come until `text` is there, it included; what was read stays for response().
  async seen(text) {
    while (!this.#bytes.includes(text)) await this.#more(text);
    return this.#bytes.toString();
  }

  async #until(mark) {
    while (!this.#bytes.includes(mark)) await this.#more(mark);
    const end = this.#bytes.indexOf(mark);
    const text = this.#bytes.subarray(0, end).toString();
    this.#bytes = this.#bytes.subarray(end + mark.length);
    return text;
  }

  async #take(count) {
    while (this.#bytes.length < count) await this.#more(`${count} bytes`);
    const piece = this.#bytes.subarray(0, count);
    this.#bytes = this.#bytes.subarray(count);
    return piece;
  }

  async #more(what) {
    if (this.#ended) {
      if (what === undefined) return;
      throw new Error(`the connection ended before ${JSON.stringify(what)}; there is ${JSON.stringify(this.#bytes.toString().slice(0, 200))}`);
    }
    await Promise.race([once(this.socket, "data"), once(this.socket, "end"), once(this.socket, "close").then(() => (this.#ended = true))]);
  }
}
