// Anthropic's client: messages, caps, stop sequences, thinking; each asked whole and as a stream.
import assert from "node:assert/strict";
import { test } from "node:test";
import { anthropic, assistant, bothMessages, defaults, openai, story, system, textOf, user, violin } from "./support.mjs";

const text = (string) => ({ type: "text", text: string });
const promptOf = ({ usage }) => usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens;
const tokens = async (ask, messages, fields) => promptOf(await ask(messages, { max_tokens: 1, ...fields }));

bothMessages("case 31: a message has every field of its type", async (ask) => {
  const message = await ask([user("hi")]);
  assert.equal(message.type, "message");
  assert.equal(message.role, "assistant");
  assert.match(message.id, /^msg_/);
  assert.equal(message.model, "strata-demo");
  assert.equal(message.content.length, 1);
  assert.equal(message.content[0].type, "text");
  assert.ok(message.content[0].text.length > 0);
  assert.ok(["end_turn", "max_tokens"].includes(message.stop_reason));
  assert.equal(message.stop_sequence, null);
  for (const key of ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens"])
    assert.ok(Number.isInteger(message.usage[key]) && message.usage[key] >= 0, key);
  assert.ok(message.usage.output_tokens > 0);
});

test("timings stand beside the final usage, whole and streamed", async () => {
  const request = { ...defaults, max_tokens: 3, messages: violin };
  const whole = await anthropic.messages.create(request);
  assert.equal(whole.timings.predicted_n, whole.usage.output_tokens);
  for await (const event of await anthropic.messages.create({ ...request, stream: true })) {
    assert.equal("timings" in event, event.type === "message_delta");
    if (event.type === "message_delta") assert.equal(event.timings.predicted_n, event.usage.output_tokens);
  }
});

bothMessages("a question is answered as in the other dialect", async (ask) => {
  const { choices } = await openai.chat.completions.create({ ...defaults, messages: violin });
  assert.equal(await ask.text(violin), choices[0].message.content);
});

bothMessages("any model name is served and answered with ours", async (ask) => {
  assert.equal((await ask(violin, { model: "claude-x", max_tokens: 1 })).model, "strata-demo");
});

for (const cap of [1, 5]) {
  bothMessages(`case 31: exact cap of ${cap}`, async (ask) => {
    const message = await ask(story, { max_tokens: cap });
    assert.equal(message.stop_reason, "max_tokens");
    assert.equal(message.usage.output_tokens, cap);
  });
}

bothMessages("a cap above what the context leaves is lowered to it", async (ask) => {
  assert.equal((await ask(violin, { max_tokens: 1_000_000 })).stop_reason, "end_turn");
});

// --- case 34: stop sequences

bothMessages("case 34: a stop sequence is named and not part of the text", async (ask) => {
  const full = await ask.text(violin);
  const stop = full.split(" ")[4];
  const message = await ask(violin, { stop_sequences: ["###", stop] });
  assert.equal(message.stop_reason, "stop_sequence");
  assert.equal(message.stop_sequence, stop);
  assert.equal(textOf(message), full.slice(0, full.indexOf(stop)));
});

bothMessages("case 34: over a border of tokens", async (ask) => {
  const full = await ask.text(violin);
  const stop = full.slice(9, 16);
  const message = await ask(violin, { stop_sequences: [stop] });
  assert.equal(message.stop_sequence, stop);
  assert.equal(textOf(message), full.slice(0, full.indexOf(stop)));
});

bothMessages("case 34: a natural end names none", async (ask) => {
  const message = await ask(violin, { max_tokens: 64, stop_sequences: ["###"] });
  assert.equal(message.stop_reason, "end_turn");
  assert.equal(message.stop_sequence, null);
});

bothMessages("case 34: an empty list is nothing", async (ask) => {
  assert.equal(await ask.text(violin, { stop_sequences: [] }), await ask.text(violin));
});

// --- system

bothMessages("case 31: system as a string or blocks", async (ask) => {
  const plain = await tokens(ask, violin);
  const one = await tokens(ask, violin, { system: "Be kind." });
  assert.ok(one > plain);
  assert.equal(await tokens(ask, violin, { system: [text("Be kind.")] }), one);
  assert.ok((await tokens(ask, violin, { system: [text("Be kind."), text("Be brief.")] })) > one);
});

bothMessages("rule B11: billing lines are left out", async (ask) => {
  const count = (number) => tokens(ask, violin, { system: [text(`x-anthropic-billing-header: n=${number}`), text("Be kind.")] });
  assert.equal(await count(1), await count(123456789));
  assert.equal(await count(1), await tokens(ask, violin, { system: "Be kind." }));
});

bothMessages("a system message among the messages", async (ask) => {
  assert.ok((await tokens(ask, [user("Hello"), assistant("Hello!"), system("Be brief."), ...violin])) > (await tokens(ask, [user("Hello"), assistant("Hello!"), ...violin])));
});

// --- content

bothMessages("content as a string, a block and two blocks is the same", async (ask) => {
  const plain = await tokens(ask, violin);
  assert.equal(await tokens(ask, [user([text("What is a violin?")])]), plain);
  assert.equal(await tokens(ask, [user([text("What is a"), text(" violin?")])]), plain);
});

bothMessages("case 31: cache_control anywhere", async (ask) => {
  const cache_control = { type: "ephemeral" };
  const fields = { system: [{ ...text("Be kind."), cache_control }] };
  assert.equal(await ask.text([user([{ ...text("What is a violin?"), cache_control }])], fields), await ask.text(violin, { system: "Be kind." }));
});

bothMessages("metadata, service_tier and unknown fields change nothing", async (ask) => {
  assert.equal(await ask.text(violin, { metadata: { user_id: "u" }, service_tier: "auto", x_anything: [1] }), await ask.text(violin));
});

bothMessages("an assistant message at the end is continued", async (ask) => {
  const full = await ask.text(violin, { max_tokens: 64 });
  const begun = full.slice(0, full.indexOf(" ", 12));
  assert.equal(await ask.text([...violin, assistant(begun)], { max_tokens: 64 }), full.slice(begun.length));
});

bothMessages("empty turns of the assistant are left out", async (ask) => {
  assert.equal(await tokens(ask, [user("Hello"), assistant(""), ...violin]), await tokens(ask, [user("Hello"), ...violin]));
});

bothMessages("rule B17: an image in an older turn is a note", async (ask) => {
  const image = { type: "image", source: { type: "base64", media_type: "image/png", data: "AAAA" } };
  assert.ok((await tokens(ask, [user([text("See"), image]), assistant("Nice."), ...violin])) > (await tokens(ask, violin)));
});

for (const string of ["日本語の文字", "👩‍👩‍👧‍👦 👍🏽 🇳🇴", "e\u0301 a\u0308", "\u0000 \u001b \u202e \ufeff"]) {
  bothMessages(`case 21: ${JSON.stringify(string)} in a question`, async (ask) => {
    const message = await ask([user(`${string} What is a violin?`)], { max_tokens: 4 });
    assert.ok(textOf(message).isWellFormed());
  });
}

// --- conversations and what they read again

bothMessages("a conversation of several turns keeps what was said", async (ask) => {
  const messages = [user("Hello, my name is Anna.")];
  messages.push(assistant((await ask(messages, { max_tokens: 40 })).content), user("What is my name?"));
  assert.match(await ask.text(messages, { max_tokens: 40 }), /Anna/);
});

bothMessages("rule B13: a second turn reports what was read before", async (ask) => {
  const fields = { system: `You are number ${Math.random()}.` };
  const first = await ask(violin, fields);
  const second = await ask([...violin, assistant(first.content), user("And a lute?")], { ...fields, max_tokens: 4 });
  assert.ok(second.usage.cache_read_input_tokens >= promptOf(first), JSON.stringify(second.usage));
});

// --- sampling

bothMessages("a seed repeats, another one differs", async (ask) => {
  const say = (seed) => ask.text(story, { temperature: 1, top_k: 0, seed, max_tokens: 24 });
  const first = await say(42);
  assert.equal(await say(42), first);
  assert.notEqual(await say(43), first);
});

bothMessages("top_k 1 and a narrow top_p are greedy", async (ask) => {
  const greedy = await ask.text(violin);
  assert.equal(await ask.text(violin, { temperature: 1, top_k: 1 }), greedy);
  assert.equal(await ask.text(violin, { temperature: 1, top_p: 1e-6 }), greedy);
});

// --- case 20 and rule B15: thinking; the demo model shows its working

const sum = [user("What is 47 plus 85?")];
for (const thinking of [{ type: "enabled", budget_tokens: 1024 }, { type: "adaptive" }]) {
  bothMessages(`case 20: thinking ${thinking.type} is a block of its own in front`, async (ask) => {
    const message = await ask(sum, { max_tokens: 400, thinking });
    assert.deepEqual(message.content.map((block) => block.type), ["thinking", "text"]);
    const [thought, answer] = message.content;
    assert.ok(thought.thinking.length > 0);
    assert.equal(typeof thought.signature, "string");
    assert.match(answer.text, /132/);
    assert.ok(!/<\/?think>/.test(thought.thinking + answer.text));
  });
}

for (const thinking of [undefined, { type: "disabled" }]) {
  bothMessages(`rule B15: thinking ${thinking?.type ?? "left out"}: it does not`, async (ask) => {
    assert.deepEqual((await ask(sum, { thinking })).content.map((block) => block.type), ["text"]);
  });
}

bothMessages("rule B16: a small cap leaves a part of itself to the answer", async (ask) => {
  const message = await ask(sum, { max_tokens: 6, thinking: { type: "enabled", budget_tokens: 1024 } });
  assert.equal(message.content[0].type, "thinking");
  assert.equal(message.stop_reason, "max_tokens");
  assert.equal(message.usage.output_tokens, 6);
});

bothMessages("rule B7: thinking is accepted back with its signature, and redacted thinking, too", async (ask) => {
  const thinking = { type: "enabled", budget_tokens: 1024 };
  const { content } = await ask(sum, { max_tokens: 400, thinking });
  const redacted = { type: "redacted_thinking", data: "AAAA" };
  const messages = [...sum, assistant([redacted, ...content]), user("Thank you.")];
  assert.ok((await ask(messages, { max_tokens: 4, thinking })).usage.output_tokens > 0);
});

// --- streams by themselves

test("stream: case 32: the events by their names, without [DONE]", async () => {
  const names = [];
  for await (const event of await anthropic.messages.create({ ...defaults, messages: violin, max_tokens: 3, stream: true })) names.push(event.type);
  const pieces = names.filter((name) => name === "content_block_delta").length;
  assert.ok(pieces >= 1);
  assert.deepEqual(names.filter((name) => name !== "ping" && name !== "content_block_delta"),
    ["message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"]);
});

test("stream: the helper tells text and thinking while they come", async () => {
  let said = "", thought = "", signature, blocks = 0;
  const stream = anthropic.messages.stream({ ...defaults, messages: sum, max_tokens: 400, thinking: { type: "enabled", budget_tokens: 1024 } })
    .on("text", (piece) => (said += piece)).on("thinking", (piece) => (thought += piece)).on("signature", (value) => (signature = value))
    .on("contentBlock", () => ++blocks);
  const message = await stream.finalMessage();
  assert.equal(message.content[0].thinking, thought);
  assert.equal(message.content[0].signature, signature);
  assert.equal(await stream.finalText(), said);
  assert.equal(blocks, 2);
});

test("stream: it says what the whole message says", async () => {
  const body = { ...defaults, messages: story, max_tokens: 100 };
  const whole = await anthropic.messages.create(body);
  const streamed = await anthropic.messages.stream(body).finalMessage();
  for (const key of ["content", "stop_reason", "stop_sequence", "model"]) assert.deepEqual(streamed[key], whole[key], key);
  assert.equal(streamed.usage.output_tokens, whole.usage.output_tokens);
});

test("whole: two at the same time get what they get alone", async () => {
  const say = async (word) => textOf(await anthropic.messages.create({ ...defaults, messages: [user(`What is a ${word}?`)] }));
  const together = await Promise.all(["violin", "lute", "drum"].map(say));
  for (const [i, word] of ["violin", "lute", "drum"].entries()) assert.equal(await say(word), together[i]);
});

test("whole: the beta client finds the same endpoints", async () => {
  const message = await anthropic.beta.messages.create({ ...defaults, messages: violin, betas: ["any-beta-2026-01-01"] });
  assert.equal(textOf(message), textOf(await anthropic.messages.create({ ...defaults, messages: violin })));
  const streamed = await anthropic.beta.messages.stream({ ...defaults, messages: violin }).finalMessage();
  assert.equal(textOf(streamed), textOf(message));
});

test("whole: the request id is where the client looks for it", async () => {
  const { data, response, request_id } = await anthropic.messages.create({ ...defaults, messages: violin, max_tokens: 1 }).withResponse();
  assert.ok(request_id && data._request_id === request_id && response.headers.get("x-request-id") === request_id);
});

test("whole: the model list is read by this client, too", async () => {
  const ids = [];
  for await (const { id } of anthropic.models.list()) ids.push(id);
  assert.ok(ids.includes("strata-demo"));
  assert.equal((await anthropic.models.retrieve("strata-demo")).id, "strata-demo");
});
