// The wire: framing, bodies, methods, hosts, on a bare socket (api-cases 37 to 40).
import assert from "node:assert/strict";
import { test } from "node:test";
import { metric, url, user, violin } from "./support.mjs";
import { RawHttp } from "./raw_http.mjs";

const chat = "/v1/chat/completions";
const question = { model: "m", messages: violin, temperature: 0, max_tokens: 4 };
const wire = (name, use) => test(name, () => RawHttp.with(url, use));
const events = ({ body }) => body.split("\n\n").filter((event) => event.startsWith("data:"));

// --- case 37: streams

wire("case 37: headers and form of a stream", async (raw) => {
  const response = await raw.post(chat, { ...question, stream: true }).response();
  assert.equal(response.status, 200);
  assert.match(response.headers.get("content-type"), /^text\/event-stream/);
  assert.equal(response.headers.get("cache-control"), "no-cache");
  assert.equal(response.headers.get("x-accel-buffering"), "no");
  assert.equal(response.headers.get("transfer-encoding"), "chunked");
  assert.ok(!response.headers.has("content-length"));
  assert.ok(!response.body.includes("\r"));
  assert.ok(response.body.endsWith("data: [DONE]\n\n"));
  for (const event of response.body.trimEnd().split("\n\n")) {
    const lines = event.split("\n");
    assert.equal(lines.length, 1, "an event of several lines");
    if (lines[0].startsWith(":")) continue;
    assert.ok(lines[0] === "data: [DONE]" || JSON.parse(lines[0].slice(6)).object === "chat.completion.chunk");
  }
});

wire("case 37: every event is a chunk of its own, flushed at once", async (raw) => {
  const { chunks } = await raw.post(chat, { ...question, max_tokens: 24, stream: true }).response();
  assert.ok(chunks.length > 8);
  for (const chunk of chunks) assert.ok(chunk.endsWith("\n\n"), JSON.stringify(chunk));
});

wire("case 37: a stream begins while the rest is still to come", async (raw) => {
  raw.post(chat, { ...question, messages: [user(`Tell me a story ${Math.random()}.`)], max_tokens: 400, stream: true });
  const begun = await raw.seen('"role":"assistant"');
  assert.ok(!begun.includes("[DONE]"));
  assert.ok((await raw.response()).body.includes("[DONE]"));
});

wire("case 37: the connection goes on behind [DONE]", async (raw) => {
  const first = await raw.post(chat, { ...question, stream: true }).response();
  const second = await raw.post(chat, { ...question, stream: true }).response();
  assert.equal(events(second).length, events(first).length);
  assert.equal((await raw.request("GET", "/v1/models").response()).status, 200);
});

wire("case 37: an HTTP/1.0 client gets a stream that ends with the connection", async (raw) => {
  const response = await raw.post(chat, { ...question, stream: true }, { version: "1.0" }).response();
  assert.equal(response.status, 200);
  assert.ok(!response.headers.has("transfer-encoding") && !response.headers.has("content-length"));
  assert.ok(response.body.endsWith("data: [DONE]\n\n"));
});

wire("case 37: an HTTP/1.0 client gets a whole response and the end", async (raw) => {
  const response = await raw.post(chat, question, { version: "1.0" }).response();
  assert.equal(response.json().object, "chat.completion");
  assert.ok(await raw.ended());
});

for (const stream of [false, true]) {
  wire(`case 37: Connection: close is honoured${stream ? " behind a stream" : ""}`, async (raw) => {
    const response = await raw.post(chat, { ...question, stream }, { headers: ["Connection: close"] }).response();
    assert.equal(response.headers.get("connection"), "close");
    assert.ok(await raw.ended());
  });
}

wire("case 32: Anthropic's events have names that equal their types", async (raw) => {
  const { body } = await raw.post("/v1/messages", { ...question, stream: true }).response();
  const all = body.trimEnd().split("\n\n").filter((event) => !event.startsWith(":"));
  assert.ok(all.length >= 6);
  for (const event of all) {
    const [name, data, ...more] = event.split("\n");
    assert.deepEqual(more, []);
    assert.equal(`event: ${JSON.parse(data.replace(/^data: /, "")).type}`, name);
  }
  assert.ok(!body.includes("[DONE]"));
});

// --- keep-alive and pipelining

wire("requests in one packet are answered in order", async (raw) => {
  const one = (target) => `GET ${target} HTTP/1.1\r\nHost: ${raw.host}\r\n\r\n`;
  raw.send(one("/v1/models") + one("/live") + one("/nowhere") + one("/props"));
  assert.equal((await raw.response()).json().object, "list");
  assert.equal((await raw.response()).status, 200);
  assert.equal((await raw.response()).status, 404);
  assert.equal((await raw.response()).json().context_length, 4096);
});

wire("two generations in one packet are answered in order", async (raw) => {
  raw.post(chat, { ...question, max_tokens: 2 }).post(chat, { ...question, max_tokens: 3, stream: true }).request("GET", "/live");
  assert.equal((await raw.response()).json().usage.completion_tokens, 2);
  assert.ok((await raw.response()).body.includes("[DONE]"));
  assert.equal((await raw.response()).status, 200);
});

wire("a request that comes byte by byte", async (raw) => {
  const body = JSON.stringify(question);
  const bytes = `POST ${chat} HTTP/1.1\r\nHost: ${raw.host}\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
  raw.socket.setNoDelay(true);
  for (const byte of bytes) {
    raw.send(byte);
    await new Promise(setImmediate);
  }
  assert.equal((await raw.response()).status, 200);
});

wire("empty lines before a request are skipped", async (raw) => {
  assert.equal((await raw.send("\r\n").request("GET", "/live").response()).status, 200);
});

// --- case 38: bodies

const chunked = (text, size) => {
  let out = "";
  for (let at = 0; at < text.length; at += size) {
    const piece = text.slice(at, at + size);
    out += `${piece.length.toString(16)};x=y\r\n${piece}\r\n`;
  }
  return `${out}0\r\nX-Trailer: z\r\n\r\n`;
};

for (const size of [1, 7, 4096]) {
  wire(`case 38: a body in chunks of ${size}`, async (raw) => {
    const body = chunked(JSON.stringify(question), size);
    const response = await raw.post(chat, body, { headers: ["Transfer-Encoding: chunked"] }).response();
    assert.equal(response.status, 200, response.body);
    assert.equal((await raw.request("GET", "/live").response()).status, 200);
  });
}

wire("case 38: Expect: 100-continue", async (raw) => {
  const body = JSON.stringify(question);
  raw.request("POST", chat, { headers: ["Content-Type: application/json", "Expect: 100-continue", `Content-Length: ${body.length}`] });
  assert.equal((await raw.response()).status, 100);
  assert.equal((await raw.send(body).response()).status, 200);
});

wire("case 38: a body above the limit is refused without being read", async (raw) => {
  const response = await raw.request("POST", chat, { headers: ["Content-Type: application/json", `Content-Length: ${33 << 20}`] }).response();
  assert.equal(response.status, 413);
  assert.match(response.json().error.message, /33554432/);
  assert.ok(await raw.ended());
});

wire("case 38: chunks above the limit are refused", async (raw) => {
  raw.request("POST", chat, { headers: ["Content-Type: application/json", "Transfer-Encoding: chunked"] });
  raw.send(`${(33 << 20).toString(16)}\r\n`);
  assert.equal((await raw.response()).status, 413);
});

for (const [name, body] of [
  ["no JSON", "{"],
  ["an array", "[]"],
  ["a string", '"hi"'],
  ["nothing", ""],
  ["invalid UTF-8", Buffer.from([...Buffer.from('{"messages":[{"role":"user","content":"'), 0xff, 0xfe, ...Buffer.from('"}]}')])],
  ["an overlong character", Buffer.from([...Buffer.from('{"model":"'), 0xc0, 0xaf, ...Buffer.from('"}')])],
  ["a lone surrogate", '{"model":"\\ud800","messages":[]}'],
  ["nesting of 129", `{"x":${"[".repeat(128)}${"]".repeat(128)}}`],
  ["nesting of 100,000", `{"x":${"[".repeat(100_000)}`],
  ["a number that is none", '{"temperature":1e}'],
  ["a comment", '{/* */"messages":[]}'],
  ["text behind the object", '{"messages":[]} x'],
  ["a NUL byte", '{"messages":[]}\u0000'],
]) {
  wire(`case 38: ${name} is a 400 in JSON, and the connection goes on`, async (raw) => {
    const length = `Content-Length: ${Buffer.byteLength(body)}`;
    raw.request("POST", chat, { headers: ["Content-Type: application/json", length] }).send(body);
    const response = await raw.response();
    assert.equal(response.status, 400);
    assert.equal(response.json().error.type, "invalid_request_error");
    assert.equal((await raw.request("GET", "/live").response()).status, 200);
  });
}

wire("case 38: of duplicate keys the last one wins", async (raw) => {
  const body = `{"max_tokens":9,"messages":${JSON.stringify(violin)},"max_tokens":2}`;
  assert.equal((await raw.post(chat, body).response()).json().usage.completion_tokens, 2);
});

wire("case 38: nesting of 100 in a field that nobody knows", async (raw) => {
  const body = `{"max_tokens":1,"messages":${JSON.stringify(violin)},"x":${"[".repeat(100)}${"]".repeat(100)}}`;
  assert.equal((await raw.post(chat, body).response()).status, 200);
});

wire("case 38: ten megabytes of text are parsed and counted", async (raw) => {
  const response = await raw.post(chat, { ...question, messages: [user("word ".repeat(2 << 20))] }).response();
  assert.equal(response.status, 400);
  assert.equal(response.json().error.code, "context_length_exceeded");
});

wire("case 38: a body that is cut off is no request", async (raw) => {
  raw.request("POST", chat, { headers: ["Content-Type: application/json", "Content-Length: 100"] }).send('{"mess');
  raw.socket.end();
  const response = await raw.response().catch(() => ({ status: 400 }));
  assert.equal(response.status, 400);
  assert.ok(await raw.ended());
});

for (const [name, headers, status] of [
  ["no Content-Type", [], 200],
  ["curl's form type", ["Content-Type: application/x-www-form-urlencoded"], 200],
  ["JSON with a charset", ["Content-Type: application/json; charset=utf-8"], 200],
  ["text", ["Content-Type: text/plain"], 415],
  ["a multipart form", ["Content-Type: multipart/form-data; boundary=x"], 415],
  ["gzip", ["Content-Type: application/json", "Content-Encoding: gzip"], 415],
  ["identity", ["Content-Type: application/json", "Content-Encoding: identity"], 200],
]) {
  wire(`case 38: ${name}: ${status}`, async (raw) => {
    const response = await raw.request("POST", chat, { headers, body: JSON.stringify(question) }).response();
    assert.equal(response.status, status, response.body);
    if (status !== 200) assert.ok(response.json().error.message.length > 0);
  });
}

// --- what is no HTTP

for (const [name, bytes] of [
  ["no request line", "hello\r\n\r\n"],
  ["an unknown version", "GET / HTTP/9.9\r\nHost: localhost\r\n\r\n"],
  ["two lengths", "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x"],
  ["a length and chunks", "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"],
  ["a negative length", "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n"],
  ["a length that is no number", "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: ten\r\n\r\n"],
  ["a chunk size that is no number", "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"],
  ["a header without a colon", "GET / HTTP/1.1\r\nHost localhost\r\n\r\n"],
  ["a NUL in a header", "GET / HTTP/1.1\r\nHost: local\u0000host\r\n\r\n"],
]) {
  wire(`${name}: 400 and the end`, async (raw) => {
    const response = await raw.send(bytes).response();
    assert.equal(response.status, 400, response.body);
    assert.equal(response.json().error.type, "invalid_request_error");
    assert.ok(await raw.ended());
  });
}

wire("headers above 64 KiB: 431", async (raw) => {
  const response = await raw.request("GET", "/live", { headers: Array.from({ length: 80 }, (_, i) => `X-${i}: ${"y".repeat(1000)}`) }).response();
  assert.equal(response.status, 431);
});

// --- hosts and origins

for (const [name, host, status] of [
  ["this machine", "localhost:1", 200],
  ["another name", "evil.example", 403],
  ["a name that only begins like an address", "127.0.0.1.evil.example", 403],
]) {
  wire(`rule I2: Host: ${name}: ${status}`, async (raw) => {
    raw.host = host;
    assert.equal((await raw.request("GET", "/v1/models").response()).status, status);
  });
}

wire("no Host: 400; two: 400", async (raw) => {
  assert.equal((await raw.send("GET /live HTTP/1.1\r\n\r\n").response()).status, 400);
  await RawHttp.with(url, async (other) => assert.equal((await other.request("GET", "/live", { headers: ["Host: localhost"] }).response()).status, 400));
});

wire("rule I1: a page of another origin may not post, and gets no CORS headers", async (raw) => {
  const response = await raw.post(chat, question, { headers: ["Origin: https://evil.example"] }).response();
  assert.equal(response.status, 403);
  assert.equal(response.json().error.code, "forbidden");
  assert.ok(!response.headers.has("access-control-allow-origin"));
});

wire("a page from here may post", async (raw) => {
  assert.equal((await raw.post(chat, question, { headers: [`Origin: http://${raw.host}`] }).response()).status, 200);
});

// --- case 39: methods and paths

const gets = ["/", "/live", "/health", "/v1/health", "/ready", "/metrics", "/props", "/slots", "/openapi.json", "/v1/models", "/v1/models/strata-demo"];
const posts = [chat, "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens", "/apply-template", "/tokenize", "/detokenize"];

for (const target of [...gets, ...posts, "/nowhere"]) {
  wire(`case 39: OPTIONS ${target}`, async (raw) => {
    const response = await raw.request("OPTIONS", target).response();
    assert.equal(response.status, 204);
    assert.ok(!response.headers.has("access-control-allow-origin"));
    assert.ok(response.headers.get("x-request-id"));
  });
}

for (const target of gets) {
  wire(`case 39: HEAD ${target} has the headers of GET and no body`, async (raw) => {
    const got = await raw.request("GET", target).response();
    const head = await raw.request("HEAD", target).response({ head: true });
    assert.equal(head.status, got.status);
    assert.equal(head.headers.get("content-type"), got.headers.get("content-type"));
    if (target !== "/metrics") assert.equal(head.headers.get("content-length"), got.headers.get("content-length"));
    assert.equal((await raw.request("GET", "/live").response()).status, 200);
  });
  wire(`case 39: POST ${target}: 405 with Allow`, async (raw) => {
    const response = await raw.post(target, {}).response();
    assert.equal(response.status, 405);
    assert.equal(response.headers.get("allow"), "GET, HEAD, OPTIONS");
    assert.equal(response.json().error.code, "method_not_allowed");
  });
}

for (const target of posts) {
  for (const method of ["GET", "PUT", "DELETE"]) {
    wire(`case 39: ${method} ${target}: 405 with Allow`, async (raw) => {
      const response = await raw.request(method, target).response();
      assert.equal(response.status, 405);
      assert.equal(response.headers.get("allow"), "POST, OPTIONS");
    });
  }
}

for (const target of ["/v1/models/", "/v1/models?x=y&api_key=z", "/v1/models/?x"]) {
  wire(`case 39: ${target} is /v1/models`, async (raw) => {
    assert.equal((await raw.request("GET", target).response()).json().object, "list");
  });
}

for (const target of ["/nowhere", "//v1/models", "/v1", "/v1/models//", "/v1/chat", "/..%2f..%2fetc/passwd", "/%00"]) {
  wire(`case 39: ${target}: 404 with an error object`, async (raw) => {
    const { status, json } = await raw.request("GET", target).response();
    assert.equal(status, 404);
    assert.ok(["not_found", "model_not_found"].includes(json().error.code));
  });
}

for (const target of ["/v1/embeddings", "/v1/audio/speech", "/v1/audio/transcriptions", "/v1/images/generations", "/v1/moderations", "/rerank", "/v1/rerank"]) {
  wire(`case 26: ${target}: 501 with an error object that names it`, async (raw) => {
    const response = await raw.post(target, { input: "x" }).response();
    assert.equal(response.status, 501);
    assert.match(response.headers.get("content-type"), /^application\/json/);
    const { error } = response.json();
    assert.equal(error.type, "not_supported_error");
    assert.ok(error.message.includes(target));
  });
}

wire("case 39: every response has an X-Request-Id of its own", async (raw) => {
  const ids = new Set();
  for (const target of ["/live", "/nowhere", "/v1/models", "/v1/embeddings"]) ids.add((await raw.request("GET", target).response()).headers.get("x-request-id"));
  assert.equal(ids.size, 4);
  assert.ok(!ids.has(undefined));
});

// --- case 40: health

wire("case 40: live, health and ready", async (raw) => {
  assert.equal((await raw.request("GET", "/live").response()).status, 200);
  for (const target of ["/health", "/v1/health"]) assert.deepEqual((await raw.request("GET", target).response()).json(), { status: "ok" });
  assert.equal((await raw.request("GET", "/ready").response()).json().status, "ready");
});

wire("case 40: health answers while all sequences are busy", async (raw) => {
  const busy = Array.from({ length: 6 }, () => {
    const one = new RawHttp(url);
    one.post(chat, { ...question, messages: [user(`Tell me a story ${Math.random()}.`)], temperature: 1, max_tokens: 3000, stream: true });
    return one;
  });
  await Promise.all(busy.slice(0, 1).map((one) => one.seen("data:")));
  assert.ok((await metric("strata_requests_running")) > 0);
  assert.equal((await raw.request("GET", "/health").response()).status, 200);
  for (const one of busy) one.socket.destroy();
});
