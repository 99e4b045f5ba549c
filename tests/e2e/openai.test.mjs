// The official openai client against a running cluster: what an application in the field does. STRATA_URL names the server.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: `${process.env.STRATA_URL}/v1`, apiKey: "none", maxRetries: 0, timeout: 120_000 });
const ask = (content) => ({ model: "strata-demo", messages: [{ role: "user", content }], temperature: 0, max_tokens: 64 });
const answerOf = async (content, fields = {}) => (await client.chat.completions.create({ ...ask(content), ...fields })).choices[0];

test("the model is listed", async () => {
  const models = await client.models.list();
  assert.equal(models.data[0].object, "model");
  const one = await client.models.retrieve(models.data[0].id);
  assert.equal(one.id, models.data[0].id);
});

test("a question is answered in readable English", async () => {
  const choice = await answerOf("What is a violin?");
  assert.match(choice.message.content, /instrument/i);
  assert.equal(choice.finish_reason, "stop");
});

test("the stream helper assembles the same answer, with usage", async () => {
  const stream = client.chat.completions.stream({ ...ask("What is a violin?"), stream_options: { include_usage: true } });
  let pieces = 0;
  stream.on("content", () => pieces++);
  const final = await stream.finalChatCompletion();
  assert.ok(pieces > 5);
  assert.equal(final.choices[0].message.content, (await answerOf("What is a violin?")).message.content);
  const usage = await stream.totalUsage();
  assert.ok(usage.completion_tokens > 5);
});

test("two clients stream at the same time", async () => {
  const read = async (content) => {
    const times = [];
    for await (const chunk of await client.chat.completions.create({ ...ask(content), max_tokens: 200, stream: true })) {
      if (chunk.choices[0]?.delta?.content) times.push(performance.now());
    }
    return times;
  };
  // On a busy machine one answer may end before the other is even asked for: one overlap shows that they can.
  for (let attempt = 0; attempt < 5; ++attempt) {
    const [fox, swan] = await Promise.all([read("Tell me a story about a fox."), read("Tell me a story about a swan.")]);
    assert.ok(fox.length > 20 && swan.length > 20);
    if (fox[0] < swan.at(-1) && swan[0] < fox.at(-1)) return;
  }
  assert.fail("one always waited for the other to end");
});

test("a conversation of several turns keeps what was said", async () => {
  const messages = [{ role: "user", content: "Hello, my name is Anna." }];
  const first = await client.chat.completions.create({ model: "m", messages, temperature: 0, max_tokens: 40 });
  messages.push(first.choices[0].message, { role: "user", content: "What is my name?" });
  const second = await client.chat.completions.create({ model: "m", messages, temperature: 0, max_tokens: 40 });
  assert.match(second.choices[0].message.content, /Anna/);
});

test("stop strings, caps and seeds", async () => {
  const full = (await answerOf("What is a violin?")).message.content;
  const word = full.split(" ")[3];
  const stopped = await answerOf("What is a violin?", { stop: [word] });
  assert.equal(stopped.finish_reason, "stop");
  assert.ok(full.startsWith(stopped.message.content) && !stopped.message.content.includes(word));
  const capped = await client.chat.completions.create({ ...ask("Tell me a story about a fox."), max_completion_tokens: 7 });
  assert.equal(capped.choices[0].finish_reason, "length");
  assert.equal(capped.usage.completion_tokens, 7);
  const seeded = async (seed) => (await answerOf("Tell me a story about a fox.", { temperature: 1, seed, max_tokens: 30 })).message.content;
  assert.equal(await seeded(42), await seeded(42));
});

test("legacy completions continue a text", async () => {
  const completion = await client.completions.create({ model: "m", prompt: "In the beginning God created the", temperature: 0, max_tokens: 8 });
  assert.equal(completion.object, "text_completion");
  assert.ok(completion.choices[0].text.length > 3);
  const stream = await client.completions.create({ model: "m", prompt: "In the beginning God created the", temperature: 0, max_tokens: 8, stream: true });
  let text = "";
  for await (const chunk of stream) text += chunk.choices[0]?.text ?? "";
  assert.equal(text, completion.choices[0].text);
});

test("tools travel through the template", async () => {
  const tools = [{ type: "function", function: { name: "get_weather", description: "Get the current weather of a city.",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } } }];
  const completion = await client.chat.completions.create({ ...ask("What is the weather in Oslo?"), tools });
  assert.ok(completion.usage.prompt_tokens > 80, "the definitions are part of the prompt");
});

test("errors arrive as the client's own error classes", async () => {
  await assert.rejects(client.chat.completions.create({ model: "m", messages: [] }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError, String(error));
    assert.equal(error.param, "messages");
    return true;
  });
  await assert.rejects(client.chat.completions.create({ ...ask("a"), temperature: 3 }), OpenAI.BadRequestError);
  await assert.rejects(client.models.retrieve("no-such-model"), OpenAI.NotFoundError);
  const long = "word ".repeat(20000);
  await assert.rejects(client.chat.completions.create(ask(long)), (error) => error.code === "context_length_exceeded");
});

test("an aborted stream stops the work", async () => {
  const controller = new AbortController();
  const stream = await client.chat.completions.create({ ...ask("Tell me a very long story."), temperature: 1, max_tokens: 2000, stream: true },
    { signal: controller.signal });
  for await (const chunk of stream) {
    if (chunk.choices[0]?.delta?.content) break;
  }
  controller.abort();
  const deadline = Date.now() + 5000;
  for (;;) {
    const text = await (await fetch(`${process.env.STRATA_URL}/metrics`)).text();
    if (/^strata_requests_running(\{.*\})? 0$/m.test(text)) break;
    assert.ok(Date.now() < deadline, "still running five seconds after the abort");
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
});
