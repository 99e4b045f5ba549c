// openai's client: what a conversation may be made of, and what is refused of it; each asked whole and as a stream.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { assistant, bothChat, refused, system, user, violin } from "./support.mjs";

const text = (string) => ({ type: "text", text: string });
const tokens = async (ask, messages, fields) => (await ask(messages, { max_tokens: 1, ...fields })).usage.prompt_tokens;

bothChat("case 10: a string, a part and two parts are the same", async (ask) => {
  const plain = await tokens(ask, violin);
  assert.equal(await tokens(ask, [user([text("What is a violin?")])]), plain);
  assert.equal(await tokens(ask, [user([text("What is a"), text(" violin?")])]), plain);
});

bothChat("case 11: developer is system", async (ask) => {
  const say = (role) => ask.text([{ role, content: "Answer only with JSON." }, user("Extract the name, age and city: Anna is 9 years old and lives in Oslo.")]);
  assert.equal(await say("developer"), await say("system"));
});

bothChat("case 11: several system messages, also in the middle", async (ask) => {
  const messages = [system("You are kind."), user("Hello"), assistant("Hello!"), system("Be brief."), ...violin];
  const all = await tokens(ask, messages);
  for (const left of [0, 3]) assert.ok((await tokens(ask, messages.filter((_, i) => i !== left))) < all, "a system message was dropped");
});

bothChat("case 11: names are accepted", async (ask) => {
  assert.ok((await tokens(ask, [{ ...system("Be kind."), name: "rules" }, { ...violin[0], name: "anna" }])) > 0);
});

bothChat("case 9: empty user content", async (ask) => {
  assert.ok((await ask([user("")], { max_tokens: 4 })).usage.completion_tokens > 0);
});

bothChat("case 9: only a system message", async (ask) => {
  assert.ok((await ask([system("You are kind.")], { max_tokens: 4 })).usage.completion_tokens > 0);
});

bothChat("case 9, rule B6: an assistant message at the end is continued, also one of parts", async (ask) => {
  const full = await ask.text(violin, { max_tokens: 64 });
  const begun = full.slice(0, full.indexOf(" ", 12));
  for (const content of [begun, [text(begun)], [text(begun.slice(0, 3)), text(begun.slice(3))]])
    assert.equal(await ask.text([...violin, assistant(content)], { max_tokens: 64 }), full.slice(begun.length));
});

bothChat("empty finished turns are left out", async (ask) => {
  assert.equal(await tokens(ask, [user("Hello"), assistant(""), ...violin]), await tokens(ask, [user("Hello"), ...violin]));
});

bothChat("rule B11: billing lines are left out", async (ask) => {
  const lines = (number) => [system(`x-anthropic-billing-header: n=${number}\nYou are kind.`), ...violin];
  assert.equal(await tokens(ask, lines(1)), await tokens(ask, lines(123456789)));
});

bothChat("rule B17: an image in an older turn is a note", async (ask) => {
  const image = { type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } };
  assert.ok((await tokens(ask, [user([text("See"), image]), assistant("Nice."), ...violin])) > (await tokens(ask, violin)));
});

bothChat("text that looks like a mark stays text", async (ask) => {
  const plain = await tokens(ask, [user("a")]);
  assert.ok((await tokens(ask, [user("<|im_end|>")])) > plain + 2, "one token instead of its letters");
});

// --- refusals: the request does not begin, so a stream's client gets the same error

const bad = (param, message) => [OpenAI.BadRequestError, { status: 400, param, type: "invalid_request_error", code: null, ...(message && { message }) }];
const refusals = [
  ["case 9: no messages", { messages: [] }, bad("messages", /at least one/)],
  ["case 9: missing messages", { messages: undefined }, bad("messages", /missing/)],
  ["case 8: messages a string", { messages: "hi" }, bad("messages", /array/)],
  ["case 8: a number as message", { messages: [1] }, bad("messages[0]", /object/)],
  ["case 9: an unknown role", { messages: [{ role: "king", content: "hi" }] }, bad("messages[0].role", /king/)],
  ["case 9: no role", { messages: [{ content: "hi" }] }, bad("messages[0].role", /missing/)],
  ["case 9: no content", { messages: [{ role: "user" }] }, bad("messages[0].content", /missing/)],
  ["case 10: an unknown part", { messages: [user([{ type: "smell" }])] }, bad("messages[0].content[0].type", /smell/)],
  ["case 21: a lone surrogate", { messages: [user("\ud800")] }, bad(null)],
  ["an image in the last turn", { messages: [user([{ type: "image_url", image_url: { url: "data:," } }])] }, bad("messages[0].content", /image/)],
  ["case 8: temperature a word", { temperature: "hot" }, bad("temperature", /number/)],
  ["case 8: temperature 3", { temperature: 3 }, bad("temperature", /2/)],
  ["case 8: top_p 0", { top_p: 0 }, bad("top_p")],
  ["case 8: top_p 1.5", { top_p: 1.5 }, bad("top_p")],
  ["case 8: top_k -5", { top_k: -5 }, bad("top_k")],
  ["case 8: n 0", { n: 0 }, bad("n")],
  ["case 4: a cap of 0", { max_tokens: 0 }, bad("max_tokens")],
  ["case 4: a cap of -2", { max_completion_tokens: -2 }, bad("max_completion_tokens")],
  ["case 4: a cap of 1.5", { max_tokens: 1.5 }, bad("max_tokens")],
  ["case 4: a cap that is a word", { max_completion_tokens: "7" }, bad("max_completion_tokens")],
  ["case 6: five stop strings", { stop: ["a", "b", "c", "d", "e"] }, bad("stop", /4/)],
  ["case 6: an empty stop string", { stop: "" }, bad("stop", /empty/)],
  ["case 6: a number as stop string", { stop: [1] }, bad("stop")],
  ["case 7: a seed of 1.5", { seed: 1.5 }, bad("seed")],
  ["case 7: a seed of 2^70", { seed: 2 ** 70 }, bad("seed")],
  ["case 18: top_logprobs alone", { top_logprobs: 2 }, bad("top_logprobs", /logprobs/)],
  ["case 18: top_logprobs 21", { logprobs: true, top_logprobs: 21 }, bad("top_logprobs", /20/)],
  ["case 20: an unknown effort", { reasoning_effort: "heroic" }, bad("reasoning_effort", /heroic/)],
  ["case 17: an unknown response_format", { response_format: { type: "poem" } }, bad("response_format.type", /poem/)],
  ["case 15: tool_choice without tools", { tool_choice: "required" }, bad("tool_choice", /tools/)],
  ["case 15: a function that is not there", { tools: [{ type: "function", function: { name: "a" } }], tool_choice: { type: "function", function: { name: "b" } } }, bad("tool_choice", /b/)],
  ["logit_bias beyond the vocabulary", { logit_bias: { 99999999: 1 } }, bad("logit_bias")],
  ["more than the context", { messages: [user("word ".repeat(20000))] }, [OpenAI.BadRequestError, { code: "context_length_exceeded", message: /4096/ }]],
];
for (const [name, fields, [errorClass, expected]] of refusals) {
  bothChat(`refused: ${name}`, (ask) => refused(ask(violin, fields), errorClass, expected));
}
