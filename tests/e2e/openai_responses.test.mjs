// openai's client: responses (api-cases 27 to 30); each asked whole and as a stream.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { zodResponsesFunction, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { assistant, bothResponses, defaults, functions, metric, eventually, openai, outputText, refused, responseTool, story, system, user, violin } from "./support.mjs";

const question = "What is a violin?";
const text = (string, type = "input_text") => ({ type, text: string });

// --- case 27

bothResponses("case 27: a response has every field of its type", async (ask) => {
  const response = await ask("hi");
  assert.equal(response.object, "response");
  assert.match(response.id, /^resp_/);
  assert.ok(Number.isInteger(response.created_at));
  assert.equal(response.model, "strata-demo");
  assert.ok(["completed", "incomplete"].includes(response.status));
  assert.equal(response.error, null);
  const [message] = response.output;
  assert.equal(message.type, "message");
  assert.equal(message.role, "assistant");
  assert.ok(message.id.length > 0);
  assert.equal(message.content[0].type, "output_text");
  assert.deepEqual(message.content[0].annotations, []);
  const { usage } = response;
  assert.equal(usage.total_tokens, usage.input_tokens + usage.output_tokens);
  assert.ok(usage.input_tokens > 0 && usage.output_tokens > 0);
  assert.ok(usage.input_tokens_details.cached_tokens >= 0);
  assert.equal(usage.output_tokens_details.reasoning_tokens, 0);
  assert.equal(response.timings.predicted_n, usage.output_tokens);
});

bothResponses("case 27: a string is one message, and says what chat says", async (ask) => {
  const { choices, usage } = await openai.chat.completions.create({ ...defaults, messages: violin });
  const response = await ask(question);
  assert.equal(outputText(response), choices[0].message.content);
  assert.equal(response.usage.input_tokens, usage.prompt_tokens);
});

for (const [name, input] of [
  ["a message item", [{ type: "message", ...user(question) }]],
  ["a message without type", [user(question)]],
  ["parts", [user([text(question)])]],
  ["two parts", [user([text("What is a"), text(" violin?")])]],
]) {
  bothResponses(`case 27: ${name}`, async (ask) => assert.equal(await ask.text(input), await ask.text(question)));
}

bothResponses("case 27: a conversation", async (ask) => {
  const input = [user("Hello, my name is Anna."), { type: "message", ...assistant([text("Hello Anna!", "output_text")]) }, user("What is my name?")];
  assert.match(await ask.text(input), /Anna/);
});

bothResponses("case 27: instructions are the system text", async (ask) => {
  const fields = { instructions: "You are kind." };
  const { usage } = await ask(question, fields);
  assert.equal(usage.input_tokens, (await ask([system("You are kind."), user(question)])).usage.input_tokens);
  assert.equal(usage.input_tokens, (await ask([{ role: "developer", content: "You are kind." }, user(question)])).usage.input_tokens);
});

bothResponses("case 27: sampling fields, unknown ones and those without effect", async (ask) => {
  const extra = { metadata: { a: "b" }, user: "u", service_tier: "auto", prompt_cache_key: "k", truncation: "disabled", include: [], x_anything: 1, parallel_tool_calls: true };
  assert.equal(await ask.text(question, extra), await ask.text(question));
  const say = (seed) => ask.text("Tell me a story about a fox.", { temperature: 1, seed });
  assert.equal(await say(1), await say(1));
});

bothResponses("case 27: thinking is an item in front", async (ask) => {
  const response = await ask("What is 47 plus 85?", { reasoning: { effort: "high" }, max_output_tokens: 400 });
  assert.deepEqual(response.output.map((item) => item.type), ["reasoning", "message"]);
  assert.match(outputText(response), /132/);
  assert.ok(response.usage.output_tokens_details.reasoning_tokens > 0);
});

bothResponses("case 27: thinking switched off", async (ask) => {
  assert.deepEqual((await ask("What is 47 plus 85?", { reasoning: { effort: "none" } })).output.map((item) => item.type), ["message"]);
});

// --- case 28

test("stream: case 28: the events of a message by their names", async () => {
  const names = [];
  for await (const { type } of await openai.responses.create({ model: "m", input: question, temperature: 0, max_output_tokens: 64, stream: true }))
    if (names.at(-1) !== type) names.push(type);
  assert.deepEqual(names, ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added", "response.output_text.delta",
    "response.output_text.done", "response.content_part.done", "response.output_item.done", "response.completed"]);
});

test("stream: case 28: the helper puts the response together", async () => {
  let told = "";
  const stream = openai.responses.stream({ model: "m", input: question, temperature: 0, max_output_tokens: 64 });
  stream.on("response.output_text.delta", ({ delta }) => (told += delta));
  const response = await stream.finalResponse();
  assert.equal(outputText(response), told);
  assert.equal(told, (await openai.responses.create({ model: "m", input: question, temperature: 0, max_output_tokens: 64 })).output_text);
});

// --- case 29: tools

const weather = "What is the weather in Oslo?";
const callsOf = ({ output }) => output.filter((item) => item.type === "function_call");
const sunny = JSON.stringify({ temperature: 21, condition: "sunny" });
const result = (call_id, output) => ({ type: "function_call_output", call_id, output });

bothResponses("case 29: a call is an item with call_id, name and arguments", async (ask) => {
  const response = await ask(weather, { tools: [responseTool("get_weather")] });
  assert.equal(response.status, "completed");
  const [call] = callsOf(response);
  assert.equal(call.name, "get_weather");
  assert.deepEqual(JSON.parse(call.arguments), { city: "Oslo" });
  assert.ok(call.call_id.length > 0 && call.id.length > 0);
});

bothResponses("case 29: two calls", async (ask) => {
  const response = await ask("What is the weather in Rome? What time is it in Cairo?", { tools: [responseTool("get_weather"), responseTool("get_time")], max_output_tokens: 80 });
  assert.deepEqual(callsOf(response).map(({ name }) => name), ["get_weather", "get_time"]);
});

bothResponses("case 29: parallel_tool_calls false", async (ask) => {
  const response = await ask("What is the weather in Rome? What time is it in Cairo?", { tools: [responseTool("get_weather"), responseTool("get_time")], max_output_tokens: 80,
    parallel_tool_calls: false });
  assert.equal(callsOf(response).length, 1);
});

for (const [name, tool_choice, called] of [["none", "none", []], ["auto", "auto", ["get_weather"]], ["required", "required", ["get_weather"]],
  ["named", { type: "function", name: "get_time" }, ["get_time"]]]) {
  bothResponses(`case 29: tool_choice ${name}`, async (ask) => {
    const response = await ask(weather, { tools: [responseTool("get_weather"), responseTool("get_time")], tool_choice });
    assert.deepEqual(callsOf(response).map((call) => call.name), called);
  });
}

for (const [name, output] of [["a string", sunny], ["parts", [text(sunny)]]]) {
  bothResponses(`case 29: a result as ${name} is answered from`, async (ask) => {
    const tools = [responseTool("get_weather")];
    const first = await ask(weather, { tools });
    const answer = await ask.text([user(weather), ...first.output, result(callsOf(first)[0].call_id, output)], { tools });
    assert.match(answer, /sunny/);
  });
}

bothResponses("case 29: a result of an unknown call", async (ask) => {
  const call = { type: "function_call", call_id: "c1", name: "get_weather", arguments: '{"city": "Oslo"}' };
  assert.match(await ask.text([user(weather), call, result("of_an_earlier_life", sunny)], { tools: [responseTool("get_weather")] }), /sunny/);
});

bothResponses("case 29: hosted tools are dropped and named in warnings", async (ask) => {
  const response = await ask(weather, { tools: [{ type: "web_search" }, { type: "file_search", vector_store_ids: [] }, responseTool("get_weather")] });
  assert.equal(callsOf(response)[0].name, "get_weather");
  for (const type of ["web_search", "file_search"]) assert.ok(JSON.stringify(response.warnings).includes(type));
});

bothResponses("case 29: reasoning items are accepted back", async (ask) => {
  const first = await ask("What is 47 plus 85?", { reasoning: { effort: "high" }, max_output_tokens: 400 });
  const again = await ask([user("What is 47 plus 85?"), ...first.output, user("Thank you.")], { max_output_tokens: 4 });
  assert.ok(again.usage.output_tokens > 0);
});

test("whole: zod's functions are called", async () => {
  const get = zodResponsesFunction({ name: "get_weather", description: functions.get_weather[0], parameters: z.object({ city: z.string() }) });
  const response = await openai.responses.parse({ model: "m", temperature: 0, max_output_tokens: 64, input: weather, tools: [get] });
  assert.deepEqual(JSON.parse(response.output[0].arguments), { city: "Oslo" });
});

// --- text.format

bothResponses("text.format json_object", async (ask) => {
  const said = await ask.text("Extract the name, age and city: Anna is 9 years old and lives in Oslo.", { instructions: "Answer only with JSON.", text: { format: { type: "json_object" } }, max_output_tokens: 100 });
  assert.equal(JSON.parse(said).name, "Anna");
});

const Person = z.object({ name: z.string(), age: z.number().int(), city: z.string() });
bothResponses("text.format json_schema, by zod", async (ask) => {
  const said = await ask.text("Extract the name, age and city: Anna is 9 years old and lives in Oslo.", { instructions: "Answer only with JSON.", text: { format: zodTextFormat(Person, "person") }, max_output_tokens: 100 });
  assert.deepEqual(Person.parse(JSON.parse(said)), { name: "Anna", age: 9, city: "Oslo" });
});

test("whole: zod's objects are parsed", async () => {
  const response = await openai.responses.parse({ model: "m", temperature: 0, max_output_tokens: 100, instructions: "Answer only with JSON.",
    input: "Extract the name, age and city: Anna is 9 years old and lives in Oslo.", text: { format: zodTextFormat(Person, "person") } });
  assert.deepEqual(response.output_parsed, { name: "Anna", age: 9, city: "Oslo" });
});

// --- case 29: what is stored

bothResponses("case 29: a stored response is gone on with", async (ask) => {
  const first = await ask("Hello, my name is Anna.", { store: true });
  const second = await ask("What is my name?", { store: true, previous_response_id: first.id });
  assert.match(outputText(second), /Anna/);
  assert.equal(second.previous_response_id, first.id);
});

bothResponses("case 29: instructions are not handed on", async (ask) => {
  const first = await ask("Hello", { store: true, instructions: "You are kind. ".repeat(20) });
  const second = await ask(question, { store: true, previous_response_id: first.id, max_output_tokens: 1 });
  assert.ok(second.usage.input_tokens < first.usage.input_tokens + 60, JSON.stringify([first.usage, second.usage]));
});

bothResponses("case 29: a stored response is read, its input listed, and deleted", async (ask) => {
  const response = await ask(question, { store: true, metadata: { a: "b" } });
  const got = await openai.responses.retrieve(response.id);
  assert.deepEqual(got.output, response.output);
  assert.deepEqual(got.usage, response.usage);
  const items = (await openai.responses.inputItems.list(response.id)).data;
  assert.equal(items.length, 1);
  await openai.responses.delete(response.id);
  await refused(openai.responses.retrieve(response.id), OpenAI.NotFoundError, { status: 404 });
});

bothResponses("case 29: what is not stored is not found", async (ask) => {
  const { id } = await ask(question, { store: false, max_output_tokens: 1 });
  await refused(openai.responses.retrieve(id), OpenAI.NotFoundError, { status: 404 });
  await refused(ask("And?", { previous_response_id: id }), OpenAI.NotFoundError, { status: 404, code: /previous_response/ });
});

// --- case 30: ends

bothResponses("case 30: the cap: incomplete", async (ask) => {
  const response = await ask("Tell me a story about a fox.", { max_output_tokens: 16 });
  assert.equal(response.status, "incomplete");
  assert.equal(response.incomplete_details.reason, "max_output_tokens");
  assert.equal(response.usage.output_tokens, 16);
  assert.equal(response.output[0].status, "incomplete");
});

bothResponses("case 30: a natural end: completed", async (ask) => {
  const response = await ask(question, { max_output_tokens: 64 });
  assert.equal(response.status, "completed");
  assert.equal(response.incomplete_details, null);
});

test("stream: a client that leaves ends the work", async () => {
  const stream = await openai.responses.create({ model: "m", input: "Tell me a long story.", temperature: 1, logit_bias: { 8160: -100, 8162: -100 }, max_output_tokens: 3000, stream: true });
  for await (const { type } of stream) if (type === "response.output_text.delta") break;
  await eventually(async () => (await metric("strata_requests_running")) === 0, "all work has ended");
});

// --- refusals

for (const [name, input, fields, param] of [
  ["no input", undefined, {}, "input"],
  ["an empty list", [], {}, "input"],
  ["a number", 7, {}, "input"],
  ["a number as item", [1], {}, /input\[0\]/],
  ["an unknown item", [{ type: "smell" }], {}, /input\[0\]/],
  ["an unknown role", [{ role: "king", content: "x" }], {}, /input\[0\]/],
  ["an unknown part", [user([{ type: "smell" }])], {}, /input\[0\]/],
  ["background", question, { background: true }, "background"],
  ["a cap of 0", question, { max_output_tokens: 0 }, "max_output_tokens"],
  ["temperature 3", question, { temperature: 3 }, "temperature"],
  ["an unknown effort", question, { reasoning: { effort: "heroic" } }, /effort/],
  ["an unknown format", question, { text: { format: { type: "poem" } } }, /format/],
  ["a tool without a name", question, { tools: [{ type: "function" }] }, /tools/],
  ["a tool that is not there", question, { tools: [responseTool("get_time")], tool_choice: { type: "function", name: "b" } }, "tool_choice"],
]) {
  bothResponses(`case 29: refused: ${name}`, (ask) => refused(ask(input, fields), OpenAI.BadRequestError, { status: 400, type: "invalid_request_error", param }));
}

bothResponses("more than the context", (ask) => refused(ask("word ".repeat(20000)), OpenAI.BadRequestError, { code: "context_length_exceeded" }));

test("whole: case 29: an unknown previous response", () =>
  refused(openai.responses.create({ model: "m", input: "x", previous_response_id: "resp_unknown" }), OpenAI.NotFoundError, { status: 404 }));
