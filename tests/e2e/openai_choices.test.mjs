// openai's client: several choices of one request (api-case 19); each asked whole and as a stream.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { bothChat, bothCompletion, refused, story, violin } from "./support.mjs";

const hot = { temperature: 1, top_k: 0, top_p: 1, max_tokens: 12 };

bothChat("case 19: n: choices by their index, the prompt counted once", async (ask) => {
  const one = await ask(story, { ...hot, seed: 5 });
  const three = await ask(story, { ...hot, seed: 5, n: 3 });
  assert.deepEqual(three.choices.map((choice) => choice.index), [0, 1, 2]);
  assert.equal(three.usage.prompt_tokens, one.usage.prompt_tokens);
  assert.equal(three.usage.completion_tokens, 36);
  assert.ok(new Set(three.choices.map((choice) => choice.message.content)).size > 1, "all the same");
});

bothChat("case 19: n: a seed repeats all choices", async (ask) => {
  const say = async () => (await ask(story, { ...hot, seed: 5, n: 2 })).choices.map((choice) => choice.message.content);
  assert.deepEqual(await say(), await say());
});

bothChat("case 19: n: each choice has its own end and scores", async (ask) => {
  const { choices } = await ask(violin, { n: 2, max_tokens: 4, logprobs: true });
  for (const choice of choices) {
    assert.equal(choice.finish_reason, "length");
    assert.equal(choice.logprobs.content.length, 4);
  }
});

bothChat("case 19: n beyond the limit is refused", (ask) => refused(ask(violin, { n: 1000 }), OpenAI.BadRequestError, { param: "n" }));

bothCompletion("case 19: n of every prompt", async (ask) => {
  const { choices, usage } = await ask(["In the beginning", "And the LORD said"], { ...hot, n: 2, seed: 1 });
  assert.deepEqual(choices.map((choice) => choice.index), [0, 1, 2, 3]);
  assert.equal(usage.completion_tokens, 48);
});

bothCompletion("case 19: best_of below n is refused", (ask) => refused(ask("In the", { n: 2, best_of: 1 }), OpenAI.BadRequestError, { param: "best_of" }));
