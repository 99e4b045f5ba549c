// openai's client, chat completions: the answer, its caps, sampling and scores; each asked whole and as a stream.
import assert from "node:assert/strict";
import { test } from "node:test";
import { assistant, bothChat, defaults, joinChat, openai, story, system, url, user, violin } from "./support.mjs";

bothChat("case 1: a minimal reply has every field of its type", async (ask) => {
  const completion = await ask([user("hi")]);
  assert.equal(completion.object, "chat.completion");
  assert.match(completion.id, /^chatcmpl-/);
  assert.ok(Number.isInteger(completion.created) && Math.abs(completion.created - Date.now() / 1000) < 600);
  assert.equal(completion.model, "strata-demo");
  assert.match(completion.system_fingerprint, /^fp_/);
  assert.equal(completion.choices.length, 1);
  const [choice] = completion.choices;
  assert.equal(choice.index, 0);
  assert.equal(choice.message.role, "assistant");
  assert.ok(choice.message.content.length > 0);
  assert.ok(["stop", "length"].includes(choice.finish_reason));
  const { usage } = completion;
  assert.ok(usage.prompt_tokens > 0 && usage.completion_tokens > 0);
  assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
  assert.ok(usage.prompt_tokens_details.cached_tokens <= usage.prompt_tokens);
});

bothChat("a question is answered in readable English", async (ask) => {
  const [choice] = (await ask(violin, { max_tokens: 64 })).choices;
  assert.match(choice.message.content, /instrument/i);
  assert.equal(choice.finish_reason, "stop");
});

bothChat("case 25: any model name is served and answered with ours", async (ask) => {
  assert.equal((await ask(violin, { model: "gpt-5", max_tokens: 1 })).model, "strata-demo");
});

// --- case 4 and 5: caps

for (const [name, fields, tokens] of [
  ["max_tokens", { max_tokens: 7 }, 7],
  ["max_completion_tokens wins over max_tokens", { max_tokens: 3, max_completion_tokens: 5 }, 5],
  ["one token", { max_tokens: 1 }, 1],
  ["max_tokens null and max_completion_tokens", { max_tokens: null, max_completion_tokens: 4 }, 4],
]) {
  bothChat(`case 5: exact cap: ${name}`, async (ask) => {
    const completion = await ask(story, fields);
    assert.equal(completion.usage.completion_tokens, tokens);
    assert.equal(completion.choices[0].finish_reason, "length");
  });
}

for (const none of [null, -1]) {
  bothChat(`case 4: a cap of ${none} is what the context leaves`, async (ask) => {
    const [choice] = (await ask(violin, { max_tokens: none })).choices;
    assert.equal(choice.finish_reason, "stop");
  });
}

bothChat("a cap above what the context leaves is lowered to it", async (ask) => {
  assert.equal((await ask(violin, { max_tokens: 1_000_000 })).choices[0].finish_reason, "stop");
});

// --- case 6: stop strings

for (const [name, pick] of [
  ["a word", (words) => words[3]],
  ["a list of two", (words) => ["never said", words[4]]],
  ["a space and a word, over a border of tokens", (words) => ` ${words[2]} ${words[3].slice(0, 2)}`],
]) {
  bothChat(`case 6: stop: ${name}`, async (ask) => {
    const full = await ask.text(violin);
    const stop = pick(full.split(" "));
    const [choice] = (await ask(violin, { stop })).choices;
    assert.equal(choice.finish_reason, "stop");
    const said = choice.message.content ?? "";
    const matched = [stop].flat().find((string) => full.includes(string));
    assert.equal(said, full.slice(0, full.indexOf(matched)));
  });
}

bothChat("case 6: stop: a partial stop string at the end is not lost", async (ask) => {
  const full = await ask.text(violin, { max_tokens: 64 });
  assert.equal(await ask.text(violin, { max_tokens: 64, stop: [`${full.slice(-3)}!!`] }), full);
});

bothChat("case 6: stop: null and [] are nothing", async (ask) => {
  const full = await ask.text(violin);
  assert.equal(await ask.text(violin, { stop: null }), full);
  assert.equal(await ask.text(violin, { stop: [] }), full);
});

// --- case 7 and sampling

bothChat("case 7: a seed repeats, another one differs", async (ask) => {
  const say = (seed) => ask.text(story, { temperature: 1, top_k: 0, top_p: 1, seed, max_tokens: 24 });
  const first = await say(42);
  assert.equal(await say(42), first);
  assert.notEqual(await say(43), first);
});

for (const seed of [0, -1, Number.MAX_SAFE_INTEGER]) {
  bothChat(`case 7: seed ${seed} is accepted`, async (ask) => {
    assert.equal((await ask(violin, { seed, temperature: 0.8, max_tokens: 2 })).usage.completion_tokens, 2);
  });
}

bothChat("case 8: off switches and whole numbers for fractions", async (ask) => {
  const greedy = await ask.text(violin);
  assert.equal(await ask.text(violin, { temperature: 0, top_k: 0, top_p: 1, min_p: 0, presence_penalty: 0, frequency_penalty: 0 }), greedy);
  assert.equal(await ask.text(violin, { temperature: 1, top_k: 1 }), greedy, "the best token only");
  assert.equal(await ask.text(violin, { temperature: 1, min_p: 1 }), greedy, "none but the best");
  assert.equal(await ask.text(violin, { temperature: 1, top_p: 1e-6 }), greedy, "a nucleus of one");
});

const tokensOf = async (content) => (await openai.post(`${url}/tokenize`, { body: { content } })).tokens;

bothChat("logit_bias bans and forces tokens", async (ask) => {
  const scored = await ask(violin, { max_tokens: 1, logprobs: true, top_logprobs: 2 });
  const text = scored.choices[0].message.content;
  const [token] = await tokensOf(text);
  const banned = await ask.text(violin, { max_tokens: 1, logit_bias: { [token]: -100 } });
  assert.equal(banned, scored.choices[0].logprobs.content[0].top_logprobs[1].token, "the second best");
  const forced = await ask.text(story, { max_tokens: 1, logit_bias: { [token]: 100 } });
  assert.equal(forced, text);
});

bothChat("penalties change what is repeated", async (ask) => {
  const say = (fields) => ask.text([user("Count from 1 to 20.")], { max_tokens: 60, ...fields });
  const plain = await say({});
  for (const frequency_penalty of [-2, 2]) assert.notEqual(await say({ frequency_penalty }), plain);
  for (const name of ["repetition_penalty", "repeat_penalty"]) assert.notEqual(await say({ [name]: 0.1 }), plain, name);
});

// --- case 12: fields without effect

bothChat("case 12: unknown fields and those without effect change nothing", async (ask) => {
  const extra = { store: true, metadata: { a: "b" }, user: "u", service_tier: "auto", prediction: { type: "content", content: "x" },
    modalities: ["text"], prompt_cache_key: "k", x_anything: { deep: [1, null] } };
  assert.equal(await ask.text(violin, extra), await ask.text(violin));
});

// --- case 17: the default of response_format

bothChat("case 17: response_format text is the default", async (ask) => {
  assert.equal(await ask.text(violin, { response_format: { type: "text" } }), await ask.text(violin));
});

// --- case 18: log probabilities

bothChat("case 18: log probabilities, one entry per token", async (ask) => {
  const completion = await ask(violin, { logprobs: true, max_tokens: 8 });
  const { content } = completion.choices[0].logprobs;
  assert.equal(content.length, 8);
  for (const { token, bytes, logprob, top_logprobs } of content) {
    assert.equal(Buffer.from(bytes).toString(), token);
    assert.ok(logprob <= 0 && Number.isFinite(logprob));
    assert.deepEqual(top_logprobs, []);
  }
  assert.equal(Buffer.concat(content.map(({ bytes }) => Buffer.from(bytes))).toString(), completion.choices[0].message.content);
});

bothChat("case 18: alternatives in falling order, the greedy choice first", async (ask) => {
  const { content } = (await ask(violin, { logprobs: true, top_logprobs: 5, max_tokens: 6 })).choices[0].logprobs;
  for (const { token, logprob, top_logprobs } of content) {
    assert.equal(top_logprobs.length, 5);
    assert.equal(top_logprobs[0].token, token);
    assert.equal(top_logprobs[0].logprob, logprob);
    for (let i = 1; i < 5; ++i) assert.ok(top_logprobs[i].logprob <= top_logprobs[i - 1].logprob);
  }
});

bothChat("case 18: top_logprobs 0 is allowed, and none are there unasked", async (ask) => {
  const zero = await ask(violin, { logprobs: true, top_logprobs: 0, max_tokens: 2 });
  assert.deepEqual(zero.choices[0].logprobs.content.map(({ top_logprobs }) => top_logprobs), [[], []]);
  assert.equal((await ask(violin, { max_tokens: 2 })).choices[0].logprobs, null);
});

// --- case 20: thinking; the demo model shows its working

const sum = [user("What is 47 plus 85?")];
for (const [name, fields] of [
  ["reasoning_effort", { reasoning_effort: "high" }],
  ["reasoning.effort", { reasoning: { effort: "low" } }],
  ["enable_thinking", { enable_thinking: true }],
  ["chat_template_kwargs", { chat_template_kwargs: { enable_thinking: true } }],
]) {
  bothChat(`case 20: thinking switched on by ${name} is not in the content`, async (ask) => {
    const completion = await ask(sum, { max_tokens: 400, ...fields });
    const { message } = completion.choices[0];
    assert.ok(message.reasoning_content.length > 0);
    assert.ok(!/<\/?think>/.test(message.content + message.reasoning_content));
    assert.match(message.content, /132/);
    const { reasoning_tokens } = completion.usage.completion_tokens_details;
    assert.ok(reasoning_tokens > 0 && reasoning_tokens < completion.usage.completion_tokens);
  });
}

for (const [name, fields] of [
  ["reasoning_effort none", { reasoning_effort: "none" }],
  ["chat_template_kwargs", { reasoning_effort: "high", chat_template_kwargs: { enable_thinking: false } }],
]) {
  bothChat(`case 20: thinking switched off by ${name}`, async (ask) => {
    const completion = await ask(sum, fields);
    assert.equal(completion.choices[0].message.reasoning_content, undefined);
    assert.equal(completion.usage.completion_tokens_details.reasoning_tokens, 0);
  });
}

bothChat("case 5: a cap inside the thinking counts it and says so", async (ask) => {
  const completion = await ask(sum, { reasoning_effort: "high", max_completion_tokens: 6 });
  assert.equal(completion.choices[0].finish_reason, "length");
  assert.equal(completion.usage.completion_tokens, 6);
  assert.ok(completion.usage.completion_tokens_details.reasoning_tokens > 0);
});

bothChat("case 6: stop strings do not look at the thinking", async (ask) => {
  const { message } = (await ask(sum, { max_tokens: 400, reasoning_effort: "high" })).choices[0];
  const word = message.reasoning_content.split(/\s+/).find((piece) => piece.length > 2 && !message.content.includes(piece));
  assert.ok(word, "nothing is said in the thinking alone");
  assert.deepEqual((await ask(sum, { max_tokens: 400, reasoning_effort: "high", stop: [word] })).choices[0].message, message);
});

// --- case 21: characters; openai_structured.test.mjs has the model write them

for (const text of ["日本語の文字", "👩‍👩‍👧‍👦 👍🏽 🇳🇴", "e\u0301 a\u0308 o\u0302", "\u0000 \u001b \u202e \ufeff"]) {
  bothChat(`case 21: ${JSON.stringify(text)} in a question`, async (ask) => {
    const { choices, usage } = await ask([user(`${text} What is a violin?`)], { max_tokens: 4 });
    assert.ok((choices[0].message.content ?? "").isWellFormed());
    assert.ok(usage.prompt_tokens > (await ask([user("What is a violin?")], { max_tokens: 1 })).usage.prompt_tokens);
  });
}

// --- conversations

bothChat("a conversation of several turns keeps what was said", async (ask) => {
  const messages = [user("Hello, my name is Anna.")];
  messages.push((await ask(messages, { max_tokens: 40 })).choices[0].message, user("What is my name?"));
  assert.match(await ask.text(messages, { max_tokens: 40 }), /Anna/);
});

bothChat("a second turn reads only what is new", async (ask) => {
  const messages = [system(`You are number ${Math.random()}.`), ...violin];
  const first = await ask(messages);
  messages.push(assistant(first.choices[0].message.content), user("And a lute?"));
  const second = await ask(messages, { max_tokens: 4 });
  assert.ok(second.usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens, JSON.stringify(second.usage));
});

// --- streams by themselves

test("stream: case 3: usage only when asked for", async () => {
  for (const fields of [{}, { stream_options: { include_usage: false } }]) {
    let chunks = 0;
    for await (const chunk of await openai.chat.completions.create({ ...defaults, messages: violin, stream: true, ...fields })) {
      assert.equal(chunk.usage ?? null, null);
      assert.equal(chunk.choices.length, 1);
      ++chunks;
    }
    assert.ok(chunks > 3);
  }
});

test("stream: case 2: it says what the whole answer says", async () => {
  const body = { ...defaults, messages: story, max_tokens: 100 };
  const whole = await openai.chat.completions.create(body);
  const joined = await joinChat(await openai.chat.completions.create({ ...body, stream: true, stream_options: { include_usage: true } }));
  assert.deepEqual(joined.choices, whole.choices);
  assert.equal(joined.usage.completion_tokens, whole.usage.completion_tokens);
});

test("stream: the helper assembles the same answer, with usage and events", async () => {
  const stream = openai.chat.completions.stream({ ...defaults, messages: violin, stream_options: { include_usage: true } });
  let pieces = 0, last, done;
  stream.on("content", (_, snapshot) => (++pieces, (last = snapshot))).on("content.done", (event) => (done = event.content));
  const final = await stream.finalChatCompletion();
  assert.ok(pieces > 5);
  const { content } = (await openai.chat.completions.create({ ...defaults, messages: violin })).choices[0].message;
  for (const text of [last, done, final.choices[0].message.content, await stream.finalContent()]) assert.equal(text, content);
  assert.ok((await stream.totalUsage()).completion_tokens > 5);
});

test("stream: the helper tells log probabilities", async () => {
  const stream = openai.chat.completions.stream({ ...defaults, messages: violin, max_tokens: 5, logprobs: true });
  let told;
  stream.on("logprobs.content.done", (event) => (told = event.content));
  const final = await stream.finalChatCompletion();
  assert.equal(told.length, 5);
  assert.deepEqual(final.choices[0].logprobs.content, told);
});

test("stream: a stream handed on through a ReadableStream is the same", async () => {
  const { ChatCompletionStream } = await import("openai/lib/ChatCompletionStream");
  const stream = openai.chat.completions.stream({ ...defaults, messages: violin });
  const content = await ChatCompletionStream.fromReadableStream(stream.toReadableStream()).finalContent();
  assert.equal(content, (await openai.chat.completions.create({ ...defaults, messages: violin })).choices[0].message.content);
});

test("stream: case 23: a long prompt shows its progress when asked", async () => {
  const messages = [user(`${Math.random()} ${"one two three four five ".repeat(220)}`)];
  const seen = [];
  for await (const chunk of await openai.chat.completions.create({ ...defaults, messages, max_tokens: 2, stream: true, return_progress: true })) {
    if (!chunk.prompt_progress) continue;
    assert.deepEqual(chunk.choices.map(({ delta }) => delta), chunk.choices.map(() => ({})));
    seen.push(chunk.prompt_progress);
  }
  assert.ok(seen.length > 0);
  for (const { total, cached, processed, time_ms } of seen) assert.ok(total > 1000 && cached + processed <= total && time_ms >= 0);
});

test("stream: two clients at the same time", async () => {
  const read = async (content) => {
    const times = [];
    for await (const chunk of await openai.chat.completions.create({ ...defaults, messages: [user(content)], max_tokens: 200, stream: true })) {
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

test("whole: eight clients at the same time get what they get alone", async () => {
  const questions = ["violin", "lute", "drum", "harp", "flute", "horn", "bell", "organ"].map((word) => [user(`What is a ${word}?`)]);
  const say = async (messages) => (await openai.chat.completions.create({ ...defaults, messages, max_tokens: 16 })).choices[0].message.content;
  const together = await Promise.all(questions.map(say));
  for (const [i, messages] of questions.entries()) assert.equal(await say(messages), together[i]);
});

test("whole: the request id and the sampling are told in headers", async () => {
  const { data, response } = await openai.chat.completions.create({ ...defaults, messages: violin, seed: 5 }).withResponse();
  assert.ok(data._request_id && response.headers.get("x-request-id") === data._request_id);
  assert.match(response.headers.get("x-strata-sampling"), /seed=5/);
});
