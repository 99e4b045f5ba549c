// Anthropic's client: tools. What is offered, chosen, used, answered; each asked whole and as a stream.
import assert from "node:assert/strict";
import { test } from "node:test";
import { z } from "zod";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { anthropic, assistant, bothMessages, defaults, functions, messageTool, textOf, user, violin } from "./support.mjs";

const weather = [user("What is the weather in Oslo?")];
const both = [user("What is the weather in Rome? What time is it in Cairo?")];
const usesOf = (message) => message.content.filter((block) => block.type === "tool_use");

bothMessages("case 33: a use is a block with id, name and input", async (ask) => {
  const message = await ask(weather, { tools: [messageTool("get_weather")] });
  assert.equal(message.stop_reason, "tool_use");
  const [use] = message.content;
  assert.equal(use.type, "tool_use");
  assert.ok(use.id.length > 0);
  assert.equal(use.name, "get_weather");
  assert.deepEqual(use.input, { city: "Oslo" });
});

bothMessages("case 33: ids are unique over requests", async (ask) => {
  const ids = [];
  for (let i = 0; i < 2; ++i) ids.push(usesOf(await ask(weather, { tools: [messageTool("get_weather")] }))[0].id);
  assert.notEqual(ids[0], ids[1]);
});

bothMessages("the right one of several tools is used", async (ask) => {
  const [use] = usesOf(await ask([user("Set a timer for 5 minutes.")], { tools: Object.keys(functions).map(messageTool) }));
  assert.equal(use.name, "set_timer");
  assert.deepEqual(use.input, { minutes: 5 });
});

bothMessages("two uses are two blocks", async (ask) => {
  const uses = usesOf(await ask(both, { tools: [messageTool("get_weather"), messageTool("get_time")], max_tokens: 80 }));
  assert.deepEqual(uses.map(({ name, input }) => [name, input]), [["get_weather", { city: "Rome" }], ["get_time", { city: "Cairo" }]]);
  assert.notEqual(uses[0].id, uses[1].id);
});

bothMessages("disable_parallel_tool_use: at most one", async (ask) => {
  const message = await ask(both, { tools: [messageTool("get_weather"), messageTool("get_time")], max_tokens: 80,
    tool_choice: { type: "auto", disable_parallel_tool_use: true } });
  assert.equal(usesOf(message).length, 1);
  assert.equal(message.stop_reason, "tool_use");
});

bothMessages("a question that needs no tool is answered in words", async (ask) => {
  const message = await ask(violin, { tools: [messageTool("get_weather")], max_tokens: 64 });
  assert.deepEqual(usesOf(message), []);
  assert.equal(message.stop_reason, "end_turn");
});

bothMessages("case 33: tool_choice auto", async (ask) => {
  assert.equal(usesOf(await ask(weather, { tools: [messageTool("get_weather")], tool_choice: { type: "auto" } })).length, 1);
});

bothMessages("case 33: tool_choice none: not offered", async (ask) => {
  const message = await ask(weather, { tools: [messageTool("get_weather")], tool_choice: { type: "none" } });
  assert.deepEqual(usesOf(message), []);
  const size = ({ usage }) => usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens;
  assert.equal(size(message), size(await ask(weather, { max_tokens: 1 })));
});

bothMessages("case 33: tool_choice any", async (ask) => {
  const message = await ask([user("Set a timer for 5 minutes.")], { tools: [messageTool("get_weather"), messageTool("set_timer")], tool_choice: { type: "any" } });
  assert.equal(usesOf(message)[0].name, "set_timer");
});

for (const name of ["get_time", "get_weather"]) {
  bothMessages(`case 33: tool_choice tool: ${name}`, async (ask) => {
    const tools = [messageTool("get_weather"), messageTool("get_time")];
    const uses = usesOf(await ask(weather, { tools, tool_choice: { type: "tool", name } }));
    assert.deepEqual(uses.map((use) => use.name), [name]);
    assert.ok(uses[0].input.city.length > 0);
  });
}

bothMessages("a use that the cap cuts is none", async (ask) => {
  const message = await ask(weather, { tools: [messageTool("get_weather")], max_tokens: 8 });
  assert.equal(message.stop_reason, "max_tokens");
  if (!ask.streamed) assert.deepEqual(usesOf(message), []);
});

bothMessages("hosted tools are dropped and the rest works", async (ask) => {
  const message = await ask(weather, { tools: [{ type: "web_search_20250305", name: "web_search" }, messageTool("get_weather")] });
  assert.equal(usesOf(message)[0].name, "get_weather");
});

bothMessages("tools of type custom, with cache_control", async (ask) => {
  const message = await ask(weather, { tools: [{ type: "custom", ...messageTool("get_weather"), cache_control: { type: "ephemeral" } }] });
  assert.deepEqual(usesOf(message)[0].input, { city: "Oslo" });
});

// --- results

const sunny = JSON.stringify({ temperature: 21, condition: "sunny" });
const result = (id, content, fields) => ({ type: "tool_result", tool_use_id: id, content, ...fields });
const use = (id, name, input) => ({ type: "tool_use", id, name, input });
const answered = (...blocks) => [...weather, assistant([use("t1", "get_weather", { city: "Oslo" })]), user(blocks)];
const tools = [messageTool("get_weather"), messageTool("get_time")];

bothMessages("case 33: a result is answered from", async (ask) => {
  const message = await ask(weather, { tools });
  const answer = await ask.text([...weather, assistant(message.content), user([result(message.content[0].id, sunny)])], { tools });
  assert.match(answer, /sunny/);
});

bothMessages("case 33: several results in one turn", async (ask) => {
  const message = await ask(both, { tools, max_tokens: 80 });
  const [first, second] = usesOf(message);
  const results = user([result(first.id, sunny), result(second.id, '{"time": "10:30"}')]);
  const answer = await ask.text([...both, assistant(message.content), results], { tools, max_tokens: 60 });
  assert.match(answer, /sunny/);
  assert.match(answer, /10:30/);
});

for (const [name, block] of [
  ["blocks", result("t1", [{ type: "text", text: sunny }])],
  ["is_error", result("t1", "The weather service is away.", { is_error: true })],
  ["nothing in it", result("t1", undefined)],
  ["an image in it", result("t1", [{ type: "image", source: { type: "base64", media_type: "image/png", data: "AAAA" } }, { type: "text", text: sunny }])],
  ["an unknown use", result("of_an_earlier_life", sunny)],
]) {
  bothMessages(`case 33: a result: ${name}`, async (ask) => {
    const message = await ask(answered(block), { tools, max_tokens: 24 });
    assert.ok(message.usage.output_tokens > 0);
    if (name === "blocks" || name === "an unknown use") assert.match(textOf(message), /sunny/);
  });
}

bothMessages("case 33: results in front of text", async (ask) => {
  const message = await ask(answered(result("t1", sunny), { type: "text", text: "Thank you. What is a violin?" }), { tools, max_tokens: 24 });
  assert.ok(message.usage.output_tokens > 0);
});

bothMessages("text in front of a use, as it was answered", async (ask) => {
  const messages = [...weather, assistant([{ type: "text", text: "I look." }, use("t1", "get_weather", { city: "Oslo" })]), user([result("t1", sunny)])];
  assert.match(await ask.text(messages, { tools }), /sunny/);
});

// --- the client's own helpers

test("stream: case 33: input comes as pieces of JSON behind an empty one", async () => {
  let started;
  const pieces = [];
  const stream = anthropic.messages.stream({ ...defaults, messages: weather, tools: [messageTool("get_weather")] })
    .on("streamEvent", (event) => (event.type === "content_block_start" ? (started = structuredClone(event.content_block)) : undefined))
    .on("inputJson", (piece) => pieces.push(piece));
  const message = await stream.finalMessage();
  assert.deepEqual(started.input, {});
  assert.deepEqual(JSON.parse(pieces.join("")), message.content[0].input);
});

for (const stream of [false, true]) {
  test(`${stream ? "stream" : "whole"}: the tool runner goes round until the answer`, async () => {
    const asked = [];
    const get = betaZodTool({ name: "get_weather", description: functions.get_weather[0],
      inputSchema: z.object({ city: z.string().describe("Name of the city") }), run: (input) => (asked.push(input), sunny) });
    const runner = anthropic.beta.messages.toolRunner({ ...defaults, messages: weather, tools: [get], stream });
    const message = await runner.runUntilDone();
    assert.deepEqual(asked, [{ city: "Oslo" }]);
    assert.match(textOf(message), /sunny/);
  });
}
