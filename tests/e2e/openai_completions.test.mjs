// openai's client, text completions (api-case 24): the prompt goes on, no template is applied; each asked whole and as a stream.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { bothCompletion, refused } from "./support.mjs";

const genesis = "In the beginning God created the";

bothCompletion("case 24: a prompt goes on", async (ask) => {
  const completion = await ask(genesis);
  assert.equal(completion.object, "text_completion");
  assert.match(completion.id, /^cmpl-/);
  assert.equal(completion.model, "strata-demo");
  const [choice] = completion.choices;
  assert.equal(choice.index, 0);
  assert.ok(choice.text.length > 3);
  assert.equal(choice.finish_reason, "length");
  assert.equal(completion.usage.completion_tokens, 12);
  assert.equal(completion.usage.total_tokens, completion.usage.prompt_tokens + 12);
});

bothCompletion("case 24: 16 tokens when nobody says how many", async (ask) => {
  assert.equal((await ask(genesis, { max_tokens: undefined })).usage.completion_tokens, 16);
});

bothCompletion("case 24: several prompts are several choices", async (ask) => {
  const completion = await ask([genesis, "And the LORD said unto", genesis]);
  assert.deepEqual(completion.choices.map((choice) => choice.index), [0, 1, 2]);
  assert.equal(completion.choices[0].text, completion.choices[2].text);
  assert.notEqual(completion.choices[0].text, completion.choices[1].text);
  assert.equal(completion.usage.completion_tokens, 36);
});

bothCompletion("case 24: tokens as prompt, also several lists", async (ask) => {
  const one = await ask([100, 200, 300]);
  assert.equal(one.usage.prompt_tokens, 3);
  const two = await ask([[100, 200, 300], [100, 200]]);
  assert.equal(two.choices[0].text, one.choices[0].text);
  assert.equal(two.usage.prompt_tokens, 5);
});

bothCompletion("case 24: echo returns the prompt first", async (ask) => {
  const { text } = (await ask(genesis)).choices[0];
  assert.equal((await ask(genesis, { echo: true })).choices[0].text, genesis + text);
});

bothCompletion("case 24: no template: the same text asked as chat is longer", async (ask) => {
  assert.ok((await ask("Hello", { max_tokens: 1 })).usage.prompt_tokens <= 2);
});

bothCompletion("case 24: legacy log probabilities", async (ask) => {
  const { text, logprobs } = (await ask(genesis, { logprobs: 3, max_tokens: 5 })).choices[0];
  for (const key of ["tokens", "token_logprobs", "top_logprobs", "text_offset"]) assert.equal(logprobs[key].length, 5, key);
  assert.equal(logprobs.tokens.join(""), text);
  let offset = logprobs.text_offset[0];
  for (const [i, token] of logprobs.tokens.entries()) {
    assert.equal(logprobs.text_offset[i], offset);
    offset += [...token].length;
    assert.ok(logprobs.token_logprobs[i] <= 0);
    assert.equal(Object.keys(logprobs.top_logprobs[i]).length, 3);
    assert.equal(logprobs.top_logprobs[i][token], logprobs.token_logprobs[i]);
  }
});

bothCompletion("rule B29: log probabilities without alternatives", async (ask) => {
  const { logprobs } = (await ask(genesis, { logprobs: 0, max_tokens: 3 })).choices[0];
  assert.equal(logprobs.token_logprobs.length, 3);
});

bothCompletion("stop strings", async (ask) => {
  const { text } = (await ask(genesis)).choices[0];
  const stop = text.slice(6, 9);
  const [choice] = (await ask(genesis, { stop })).choices;
  assert.equal(choice.finish_reason, "stop");
  assert.equal(choice.text, text.slice(0, text.indexOf(stop)));
});

bothCompletion("a seed repeats, another one differs", async (ask) => {
  const say = async (seed) => (await ask(genesis, { temperature: 1, top_k: 0, seed, max_tokens: 20 })).choices[0].text;
  const first = await say(1);
  assert.equal(await say(1), first);
  assert.notEqual(await say(2), first);
});

bothCompletion("penalties change what is repeated", async (ask) => {
  const say = async (fields) => (await ask(genesis, { max_tokens: 40, ...fields })).choices[0].text;
  const plain = await say({});
  for (const name of ["presence_penalty", "frequency_penalty"]) assert.notEqual(await say({ [name]: 2 }), plain, name);
});

bothCompletion("fields without effect", async (ask) => {
  assert.equal((await ask(genesis, { user: "u", suffix: "", x_anything: 1, best_of: 1 })).choices[0].text, (await ask(genesis)).choices[0].text);
});

for (const [name, prompt, fields, param] of [
  ["no prompt", undefined, {}, "prompt"],
  ["an empty list", [], {}, "prompt"],
  ["an object", {}, {}, "prompt"],
  ["a token beyond the vocabulary", [99999999], {}, "prompt"],
  ["a token of -1", [-1], {}, "prompt"],
  ["text among tokens", [1, "a"], {}, "prompt"],
  ["65 prompts", Array(65).fill("a"), {}, "prompt"],
  ["a suffix", genesis, { suffix: "earth" }, "suffix"],
  ["log probabilities of 21", genesis, { logprobs: 21 }, "logprobs"],
  ["log probabilities of the prompt", genesis, { logprobs: 1, echo: true }, "echo"],
  ["best_of 0", genesis, { best_of: 0 }, "best_of"],
  ["a cap of 0", genesis, { max_tokens: 0 }, "max_tokens"],
]) {
  bothCompletion(`case 24: refused: ${name}`, (ask) =>
    refused(ask(prompt, fields), OpenAI.BadRequestError, { status: 400, type: "invalid_request_error", param }));
}
