// What tools for llama.cpp ask for, with plain requests.
import assert from "node:assert/strict";
import { test } from "node:test";
import { openai, url, user } from "./support.mjs";

const post = (path, body) => openai.post(url + path, { body });

for (const text of ["What is a violin?", "日本語 👩‍👩‍👧‍👦", ""]) {
  test(`${JSON.stringify(text)} becomes tokens and text again`, async () => {
    const { tokens } = await post("/tokenize", { content: text });
    assert.equal(tokens.length === 0, text === "");
    assert.equal((await post("/detokenize", { tokens })).content, text);
  });
}

test("a prompt has as many tokens as are read", async () => {
  const messages = [user("What is a violin?")];
  const { prompt } = await post("/apply-template", { messages });
  const { tokens } = await post("/tokenize", { content: prompt });
  const { usage } = await openai.chat.completions.create({ model: "m", messages, max_tokens: 1 });
  assert.equal(usage.prompt_tokens, tokens.length);
});

test("slots say what runs, and nothing of its content", async () => {
  const stream = await openai.chat.completions.create({ model: "m", messages: [user("Tell me about Zanzibarquagga.")], temperature: 1, max_tokens: 3000,
    logit_bias: { 8160: -100, 8162: -100 }, stream: true });
  for await (const chunk of stream) {
    if (!chunk.choices[0]?.delta?.content) continue;
    const slots = await openai.get(`${url}/slots`);
    assert.equal(slots.length, 4);
    assert.equal(slots.filter((slot) => slot.is_processing).length, 1);
    assert.ok(!JSON.stringify(slots).includes("Zanzibarquagga"));
    break;
  }
});

test("props have what its tools look for", async () => {
  const props = await openai.get(`${url}/props`);
  for (const name of ["default_generation_settings", "total_slots", "model_path", "chat_template"]) assert.ok(name in props, name);
  assert.equal(props.total_slots, 4);
});
