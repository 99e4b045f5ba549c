// Anthropic's client: what is refused, with its own error classes; each asked whole and as a stream.
import assert from "node:assert/strict";
import { test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { anthropic, assistant, bothMessages, defaults, refused, user, violin } from "./support.mjs";

const shape = (error, type) => {
  assert.deepEqual(Object.keys(error.error).filter((key) => key !== "request_id").sort(), ["error", "type"]);
  assert.equal(error.error.type, "error");
  assert.equal(error.error.error.type, type);
  assert.ok(error.error.error.message.length > 0);
};

const refusals = [
  ["case 31: no max_tokens", { max_tokens: undefined }, /max_tokens is missing/],
  ["max_tokens 0", { max_tokens: 0 }, /max_tokens/],
  ["max_tokens a word", { max_tokens: "7" }, /max_tokens/],
  ["no messages", { messages: [] }, /at least one/],
  ["messages a string", { messages: "hi" }, /messages/],
  ["a number as message", { messages: [1] }, /messages\[0\]/],
  ["an unknown role", { messages: [{ role: "tool", content: "x" }] }, /messages\[0\]\.role/],
  ["no content", { messages: [{ role: "user" }] }, /messages\[0\]\.content/],
  ["an unknown block", { messages: [user([{ type: "smell" }])] }, /smell/],
  ["an image in the last turn", { messages: [user([{ type: "image", source: { type: "url", url: "http://127.0.0.1/" } }])] }, /image/],
  ["system a number", { system: 7 }, /system/],
  ["temperature 3", { temperature: 3 }, /temperature/],
  ["top_p 0", { top_p: 0 }, /top_p/],
  ["top_k -5", { top_k: -5 }, /top_k/],
  ["an empty stop sequence", { stop_sequences: [""] }, /stop/],
  ["a number as stop sequence", { stop_sequences: [1] }, /stop_sequences/],
  ["thinking of an unknown type", { thinking: { type: "deep" } }, /deep/],
  ["a budget of 0", { thinking: { type: "enabled", budget_tokens: 0 } }, /budget_tokens/],
  ["a number as tool", { tools: [1] }, /tools\[0\]/],
  ["a tool without a name", { tools: [{ input_schema: { type: "object" } }] }, /name/],
  ["tool_choice any without tools", { tool_choice: { type: "any" } }, /tool_choice/],
  ["a tool that is not there", { tools: [{ name: "a", input_schema: { type: "object" } }], tool_choice: { type: "tool", name: "b" } }, /b/],
  ["tool_choice of an unknown type", { tools: [{ name: "a", input_schema: { type: "object" } }], tool_choice: { type: "some" } }, /tool_choice/],
  ["a use without a name", { messages: [...violin, assistant([{ type: "tool_use", id: "t", input: {} }])] }, /name/],
  ["a lone surrogate", { messages: [user("\ud800")] }, /./],
  ["more than the context", { messages: [user("word ".repeat(20000))] }, /4096/],
];
for (const [name, fields, message] of refusals) {
  bothMessages(`refused: ${name}`, async (ask) => {
    await refused(ask(violin, fields), Anthropic.BadRequestError, { status: 400, message });
    await ask(violin, fields).catch((error) => {
      shape(error, "invalid_request_error");
      assert.ok(error.requestID);
    });
  });
}

test("whole: counting refuses the same but wants no cap", async () => {
  await refused(anthropic.messages.countTokens({ model: "m", messages: [] }), Anthropic.BadRequestError, { message: /at least one/ });
  await refused(anthropic.messages.countTokens({ model: "m", messages: violin, system: 7 }), Anthropic.BadRequestError, { message: /system/ });
});

test("whole: batches are not offered, in the dialect's shape", async () => {
  await anthropic.messages.batches.list().then(() => assert.fail(), (error) => {
    assert.equal(error.status, 501);
    shape(error, "api_error");
  });
});

test("whole: a body above the limit is request_too_large", async () => {
  const body = { ...defaults, messages: [user("x".repeat(34 << 20))] };
  await anthropic.messages.create(body).then(() => assert.fail(), (error) => {
    assert.equal(error.status, 413);
    shape(error, "request_too_large");
  });
});
