// Clients that leave: their work ends, in every phase and both dialects, and what was read is still there (api-case 22, rules H8, H9).
import assert from "node:assert/strict";
import { test } from "node:test";
import { anthropic, defaults, eventually, metric, openai, system, url, user } from "./support.mjs";
import { RawHttp } from "./raw_http.mjs";

// More than a test may wait for: an answer that nobody stops would run into its timeout.
const endless = () => ({ ...defaults, messages: [user(`Tell me a very long story about number ${Math.random()}.`)], temperature: 1, max_tokens: 3900,
  logit_bias: endOfTurn });
const endOfTurn = { 8160: -100, 8162: -100 };
const idle = () => eventually(async () => (await metric("strata_requests_running")) === 0, "all work has ended");
const left = (phase) => metric(`strata_client_disconnects_total{phase="${phase}"}`);

test("stream: openai's client breaks off", async () => {
  const before = await left("decode");
  for await (const chunk of await openai.chat.completions.create({ ...endless(), stream: true })) if (chunk.choices[0]?.delta?.content) break;
  await idle();
  assert.equal(await left("decode"), before + 1);
});

test("stream: openai's client aborts by its controller", async () => {
  const controller = new AbortController();
  const stream = await openai.chat.completions.create({ ...endless(), stream: true }, { signal: controller.signal });
  for await (const chunk of stream) if (chunk.choices[0]?.delta?.content) controller.abort();
  await idle();
});

test("stream: openai's helper aborts", async () => {
  const stream = openai.chat.completions.stream(endless());
  stream.on("content", () => stream.abort());
  await assert.rejects(stream.done(), { name: /Abort|Error/ });
  await idle();
});

test("stream: Anthropic's helper aborts", async () => {
  const stream = anthropic.messages.stream(endless());
  stream.on("text", () => stream.abort());
  await assert.rejects(stream.done());
  await idle();
});

for (const [name, create] of [["openai", (body, options) => openai.chat.completions.create(body, options)],
  ["Anthropic", (body, options) => anthropic.messages.create(body, options)]]) {
  test(`whole: ${name}'s client aborts while the answer is written`, async () => {
    const controller = new AbortController();
    const asked = create(endless(), { signal: controller.signal });
    await eventually(async () => (await metric("strata_requests_running")) > 0, "the request runs");
    controller.abort();
    await assert.rejects(asked);
    await idle();
  });
}

test("a client that closes its sending half has left", async () => {
  await RawHttp.with(url, async (raw) => {
    raw.post("/v1/chat/completions", { ...endless(), stream: true });
    await raw.seen("data:");
    raw.socket.end();
    await idle();
  });
});

test("a queued client leaves and touches nobody else", async () => {
  const running = await Promise.all(Array.from({ length: 4 }, () => openai.chat.completions.create({ ...endless(), stream: true })));
  const queued = new AbortController();
  const asked = openai.chat.completions.create(endless(), { signal: queued.signal });
  await eventually(async () => (await metric("strata_requests_waiting")) === 1, "one waits");
  queued.abort();
  await assert.rejects(asked);
  await eventually(async () => (await metric("strata_requests_waiting")) === 0, "nobody waits");
  for (const stream of running) {
    for await (const chunk of stream) if (chunk.choices[0]?.delta?.content) break;
  }
  await idle();
});

test("what was said up to there is gone on with", async () => {
  const messages = [system(`You are number ${Math.random()}. ${"Be kind and brief. ".repeat(20)}`), user("Tell me a story about a fox.")];
  for await (const chunk of await openai.chat.completions.create({ ...defaults, messages, max_tokens: 400, stream: true })) if (chunk.choices[0]?.delta?.content) break;
  await idle();
  const { usage } = await openai.chat.completions.create({ ...defaults, messages, max_tokens: 1 });
  assert.ok(usage.prompt_tokens_details.cached_tokens > 80, JSON.stringify(usage));
});
