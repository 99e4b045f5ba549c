// A cluster with keys, one sequence, a queue of one and short limits (run.py: NARROW): authentication, overload, pages of other
// origins, idle connections (api-cases 16, 36, 38, 39).
import assert from "node:assert/strict";
import { after, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { defaults, eventually, joinChat, options, refused, textOf, user, violin } from "./support.mjs";
import { RawHttp } from "./raw_http.mjs";

const url = process.env.STRATA_NARROW_URL;
const key = "first-key";
const openai = (apiKey) => new OpenAI({ baseURL: `${url}/v1`, apiKey, ...options });
const anthropic = (credentials) => new Anthropic({ baseURL: url, apiKey: null, authToken: null, ...options, ...credentials });
const question = { ...defaults, messages: violin, max_tokens: 3 };
const endless = () => ({ ...defaults, messages: [user(`Tell me a story ${Math.random()}.`)], temperature: 1, max_tokens: 3900, logit_bias: { 8160: -100, 8162: -100 } });
const wire = (name, use) => test(name, () => RawHttp.with(url, use));
const metric = async (name) => {
  const text = await (await fetch(`${url}/metrics`, { headers: { "x-api-key": key } })).text();
  return Number(new RegExp(`^${name}(?:\\{.*\\})? (\\S+)$`, "m").exec(text)[1]);
};
const idle = () => eventually(async () => (await metric("strata_requests_running")) + (await metric("strata_requests_waiting")) === 0, "all work has ended");

// --- case 36: keys

for (const good of [key, "second-key"]) {
  test(`case 36: openai's client with ${good}`, async () => {
    assert.ok((await openai(good).models.list()).data.length > 0);
    assert.equal((await openai(good).chat.completions.create(question)).object, "chat.completion");
    assert.equal((await joinChat(await openai(good).chat.completions.create({ ...question, stream: true, stream_options: { include_usage: true } }))).choices.length, 1);
  });
  for (const [name, credentials] of [["x-api-key", { apiKey: good }], ["a bearer token", { authToken: good }]]) {
    test(`case 36: Anthropic's client with ${good} as ${name}`, async () => {
      assert.ok(textOf(await anthropic(credentials).messages.create(question)).length > 0);
      assert.ok(textOf(await anthropic(credentials).messages.stream(question).finalMessage()).length > 0);
    });
  }
}

for (const bad of ["wrong-key", "first-key2", "first-ke", "none"]) {
  test(`case 36: ${bad}: openai's AuthenticationError`, async () => {
    const fields = { status: 401, code: "invalid_api_key" };
    await refused(openai(bad).models.list(), OpenAI.AuthenticationError, fields);
    await refused(openai(bad).chat.completions.create(question), OpenAI.AuthenticationError, fields);
    await refused(openai(bad).chat.completions.create({ ...question, stream: true }), OpenAI.AuthenticationError, fields);
    await refused(openai(bad).completions.create({ model: "m", prompt: "x" }), OpenAI.AuthenticationError, fields);
  });
  test(`case 36: ${bad}: Anthropic's AuthenticationError`, async () => {
    const client = anthropic({ apiKey: bad });
    for (const asked of [client.messages.create(question), client.messages.create({ ...question, stream: true }), client.messages.countTokens({ model: "m", messages: violin })])
      await refused(asked, Anthropic.AuthenticationError, { status: 401, type: "authentication_error" });
  });
}

for (const [name, headers] of [
  ["Bearer", [`Authorization: Bearer ${key}`]],
  ["bearer", [`authorization: bearer ${key}`]],
  ["x-api-key", [`x-api-key: ${key}`]],
  ["X-API-Key without anthropic-version", [`X-API-Key: ${key}`]],
  ["a right and a wrong one", [`Authorization: Bearer wrong`, `x-api-key: ${key}`]],
]) {
  wire(`case 36: ${name} works for both dialects and the rest`, async (raw) => {
    for (const target of ["/v1/models", "/props", "/metrics", "/v1/models/strata-demo"]) assert.equal((await raw.request("GET", target, { headers }).response()).status, 200, target);
    for (const target of ["/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens"]) assert.equal((await raw.post(target, question, { headers }).response()).status, 200, target);
  });
}

for (const [name, headers, query = ""] of [
  ["none", []],
  ["Basic", [`Authorization: Basic ${Buffer.from(`user:${key}`).toString("base64")}`]],
  ["no scheme", [`Authorization: ${key}`]],
  ["in the query", [], `?api_key=${key}&key=${key}`],
  ["a cookie", [`Cookie: api_key=${key}`]],
  ["empty", ["Authorization: Bearer ", "x-api-key: "]],
]) {
  wire(`case 36: ${name}: 401 in each dialect's shape`, async (raw) => {
    for (const [method, target] of [["GET", "/v1/models"], ["GET", "/metrics"], ["GET", "/props"], ["GET", "/"], ["POST", "/v1/chat/completions"], ["POST", "/v1/completions"], ["GET", "/nowhere"], ["POST", "/v1/embeddings"]]) {
      const response = await raw.request(method, target + query, { headers, body: method === "POST" ? "{}" : "" }).response();
      assert.equal(response.status, 401, target);
      assert.match(response.headers.get("www-authenticate"), /^Bearer/);
      assert.equal(response.json().error.code, "invalid_api_key");
    }
    for (const target of ["/v1/messages", "/v1/messages/count_tokens"]) {
      const response = await raw.request("POST", target + query, { headers, body: "{}" }).response();
      assert.equal(response.status, 401);
      assert.deepEqual([response.json().type, response.json().error.type], ["error", "authentication_error"]);
      assert.match(response.headers.get("www-authenticate"), /^Bearer/);
    }
  });
}

wire("case 36: live, health and ready need none", async (raw) => {
  for (const target of ["/live", "/health", "/v1/health", "/ready"]) assert.equal((await raw.request("GET", target).response()).status, 200, target);
});

wire("case 36: a wrong key is refused before the body is sent", async (raw) => {
  const body = JSON.stringify(question);
  const begin = (...headers) => raw.send(["POST /v1/chat/completions HTTP/1.1", `Host: ${raw.host}`, `Content-Length: ${body.length}`, ...headers, "", ""].join("\r\n"));
  begin("x-api-key: wrong");
  assert.equal((await raw.response()).status, 401);
  raw.send(body);
  begin(`x-api-key: ${key}`, "Expect: 100-continue");
  assert.equal((await raw.response({ head: true })).status, 100);
  raw.send(body);
  assert.equal((await raw.response()).status, 200);
  begin("Expect: 100-continue");
  assert.equal((await raw.response()).status, 401);
  assert.ok(await raw.ended());
});

test("rule I9: what one key has stored another does not find", async () => {
  const { id } = await openai(key).responses.create({ model: "m", input: "hi", max_output_tokens: 16, store: true });
  assert.equal((await openai(key).responses.retrieve(id)).id, id);
  const other = openai("second-key");
  for (const asked of [other.responses.retrieve(id), other.responses.delete(id), other.responses.create({ model: "m", input: "And?", previous_response_id: id })])
    await refused(asked, OpenAI.NotFoundError, { status: 404 });
  await openai(key).responses.delete(id);
});

// --- case 16: overload: one runs, one waits, the next is told to come back

test("case 16: one more than the queue holds: RateLimitError of both clients with Retry-After, and the waiting is served", async () => {
  await idle();
  const client = openai(key);
  const running = await client.chat.completions.create({ ...endless(), stream: true });
  await eventually(async () => (await metric("strata_requests_running")) === 1, "one runs");
  const waiting = joinChat(await client.chat.completions.create({ ...question, stream: true, stream_options: { include_usage: true } }));
  await eventually(async () => (await metric("strata_requests_waiting")) === 1, "one waits");

  const whole = (number) => /^[1-9]\d*$/.test(number);
  for (const stream of [false, true]) {
    const error = await client.chat.completions.create({ ...question, stream }).catch((e) => e);
    assert.ok(error instanceof OpenAI.RateLimitError, String(error));
    assert.equal(error.type, "rate_limit_error");
    assert.equal(error.code, "queue_full");
    assert.ok(whole(error.headers.get("retry-after")));
    const theirs = await anthropic({ apiKey: key }).messages.create({ ...question, stream }).catch((e) => e);
    assert.ok(theirs instanceof Anthropic.RateLimitError, String(theirs));
    assert.equal(theirs.type, "rate_limit_error");
    assert.ok(whole(theirs.headers.get("retry-after")));
  }
  await RawHttp.with(url, async (raw) => {
    const ready = await raw.request("GET", "/ready").response();
    assert.equal(ready.status, 503);
    assert.equal(ready.json().status, "queue_full");
    assert.equal((await raw.request("GET", "/health").response()).status, 200);
  });

  for await (const chunk of running) if (chunk.choices[0]?.delta?.content) break;
  assert.equal((await waiting).usage.completion_tokens, 3);
});

test("case 16: a client that tries again is served when there is room", async () => {
  await idle();
  const stubborn = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 5, timeout: 120_000 });
  const answers = await Promise.all(Array.from({ length: 4 }, () => stubborn.chat.completions.create(question)));
  for (const answer of answers) assert.equal(answer.usage.completion_tokens, 3);
});

test("case 23: a waiting stream gets its headers at once and comments", async () => {
  await idle();
  const running = await openai(key).chat.completions.create({ ...endless(), stream: true });
  await RawHttp.with(url, async (raw) => {
    raw.post("/v1/chat/completions", { ...question, stream: true }, { headers: [`x-api-key: ${key}`] });
    const waited = await raw.seen(": queued");
    assert.ok(waited.startsWith("HTTP/1.1 200"));
    assert.ok(!waited.includes("data:"));
    for await (const chunk of running) if (chunk.choices[0]?.delta?.content) break;
    assert.ok((await raw.response()).body.includes("[DONE]"));
  });
});

test("case 32: a waiting stream of messages gets pings", async () => {
  await idle();
  const running = await openai(key).chat.completions.create({ ...endless(), stream: true });
  await RawHttp.with(url, async (raw) => {
    raw.post("/v1/messages", { ...question, stream: true }, { headers: [`x-api-key: ${key}`] });
    await raw.seen('{"type":"ping"}');
    for await (const chunk of running) if (chunk.choices[0]?.delta?.content) break;
    assert.ok((await raw.response()).body.includes("message_stop"));
  });
});

// --- case 38 and 39: short limits, pages

wire("case 38: a body above the configured limit", async (raw) => {
  const response = await raw.post("/v1/chat/completions", { ...question, x: "y".repeat(5000) }, { headers: [`x-api-key: ${key}`] }).response();
  assert.equal(response.status, 413);
  assert.match(response.json().error.message, /4096/);
});

// However steadily its bytes drip: a request has gateway.request_timeout_ms from its first byte to its last.
test("case 38: slow senders are cut off in the header and in the body, and others are served meanwhile", async () => {
  const cut = (begin) =>
    RawHttp.with(url, async (raw) => {
      const since = Date.now();
      raw.send(begin);
      const drip = setInterval(() => raw.send("x"), 100);
      try {
        assert.ok(await raw.ended(), "closed without a word");
      } finally {
        clearInterval(drip);
      }
      assert.ok(Date.now() - since > 2500, "it had its time");
    });
  let slow = 2;
  const done = () => --slow;
  const cuts = [
    cut(`POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Slow: `).finally(done),
    cut(`POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nx-api-key: ${key}\r\nContent-Length: 4000\r\n\r\n{`).finally(done),
  ];
  for (let served = 0; slow > 0; ++served) {
    if (served < 5) assert.equal((await openai(key).chat.completions.create(question)).usage.completion_tokens, 3);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  await Promise.all(cuts);
});

wire("an idle connection is closed, one that is used is not", async (raw) => {
  for (let i = 0; i < 3; ++i) {
    assert.equal((await raw.request("GET", "/live").response()).status, 200);
    await new Promise((resolve) => setTimeout(resolve, 400));
  }
  assert.ok(await raw.ended());
});

const page = "Origin: https://app.example";
wire("case 39: a configured page's preflight", async (raw) => {
  const headers = [page, "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type, authorization, x-stainless-os"];
  const response = await raw.request("OPTIONS", "/v1/chat/completions", { headers }).response();
  assert.equal(response.status, 204);
  assert.equal(response.headers.get("access-control-allow-origin"), "https://app.example");
  assert.equal(response.headers.get("access-control-allow-headers"), "content-type, authorization, x-stainless-os");
  assert.match(response.headers.get("access-control-allow-methods"), /POST/);
  assert.match(response.headers.get("access-control-max-age"), /^\d+$/);
  assert.match(response.headers.get("vary"), /Origin/);
});

wire("case 39: a configured page may read answers, streams and errors", async (raw) => {
  const headers = [page, `x-api-key: ${key}`];
  for (const [body, status] of [[question, 200], [{ ...question, stream: true }, 200], [{}, 400]]) {
    const response = await raw.post("/v1/chat/completions", body, { headers }).response();
    assert.equal(response.status, status);
    assert.equal(response.headers.get("access-control-allow-origin"), "https://app.example");
    assert.match(response.headers.get("vary"), /Origin/);
  }
});

wire("case 39: other pages get no headers and may not post", async (raw) => {
  const headers = ["Origin: https://other.example", `x-api-key: ${key}`];
  const preflight = await raw.request("OPTIONS", "/v1/chat/completions", { headers }).response();
  assert.ok(!preflight.headers.has("access-control-allow-origin"));
  assert.match(preflight.headers.get("vary"), /Origin/);
  assert.equal((await raw.post("/v1/chat/completions", question, { headers }).response()).status, 403);
});

after(idle);
