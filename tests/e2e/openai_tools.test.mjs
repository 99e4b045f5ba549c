// openai's client: tools. What is offered, chosen, called, answered; each asked whole and as a stream.
import assert from "node:assert/strict";
import { test } from "node:test";
import { z } from "zod";
import { zodFunction } from "openai/helpers/zod";
import { assistant, bothChat, defaults, functions, openai, system, tool, user, violin } from "./support.mjs";

const weather = [user("What is the weather in Oslo?")];
const named = (name) => ({ type: "function", function: { name } });
const callsOf = (completion) => completion.choices[0].message.tool_calls;
const argumentsOf = (call) => JSON.parse(call.function.arguments);

bothChat("case 13: a call has null content, an id and arguments that are JSON", async (ask) => {
  const completion = await ask(weather, { tools: [tool("get_weather")] });
  const [choice] = completion.choices;
  assert.equal(choice.message.content, null);
  assert.equal(choice.finish_reason, "tool_calls");
  const [call] = choice.message.tool_calls;
  assert.ok(call.id.length > 0);
  assert.equal(call.type, "function");
  assert.equal(call.function.name, "get_weather");
  assert.deepEqual(argumentsOf(call), { city: "Oslo" });
});

bothChat("case 13: ids are unique over requests", async (ask) => {
  const ids = [];
  for (let i = 0; i < 2; ++i) ids.push(callsOf(await ask(weather, { tools: [tool("get_weather")] }))[0].id);
  assert.notEqual(ids[0], ids[1]);
});

bothChat("the right one of several tools is called", async (ask) => {
  const tools = Object.keys(functions).map(tool);
  const [call] = callsOf(await ask([user("Set a timer for 5 minutes.")], { tools }));
  assert.equal(call.function.name, "set_timer");
  assert.deepEqual(argumentsOf(call), { minutes: 5 });
});

bothChat("case 14: two calls have two ids and stand one after another", async (ask) => {
  const tools = [tool("get_weather"), tool("get_time")];
  const calls = callsOf(await ask([user("What is the weather in Rome? What time is it in Cairo?")], { tools, max_tokens: 80 }));
  assert.deepEqual(calls.map((call) => call.function.name), ["get_weather", "get_time"]);
  assert.deepEqual(calls.map(argumentsOf), [{ city: "Rome" }, { city: "Cairo" }]);
  assert.notEqual(calls[0].id, calls[1].id);
});

bothChat("case 15: parallel_tool_calls false: at most one call", async (ask) => {
  const tools = [tool("get_weather"), tool("get_time")];
  const completion = await ask([user("What is the weather in Rome? What time is it in Cairo?")], { tools, max_tokens: 80, parallel_tool_calls: false });
  assert.equal(callsOf(completion).length, 1);
  assert.equal(completion.choices[0].finish_reason, "tool_calls");
});

bothChat("a question that needs no tool is answered in words", async (ask) => {
  const [choice] = (await ask(violin, { tools: [tool("get_weather")] })).choices;
  assert.equal(choice.message.tool_calls, undefined);
  assert.ok(choice.message.content.length > 0);
});

bothChat("tools are part of the prompt, also under auto", async (ask) => {
  const size = async (fields) => (await ask(violin, { max_tokens: 1, ...fields })).usage.prompt_tokens;
  const offered = await size({ tools: [tool("get_weather")] });
  assert.equal(await size({ tools: [tool("get_weather")], tool_choice: "auto" }), offered);
  assert.ok(offered > 40 + (await size({})));
});

bothChat("case 15: none: not offered, not called", async (ask) => {
  const completion = await ask(weather, { tools: [tool("get_weather")], tool_choice: "none" });
  assert.equal(callsOf(completion), undefined);
  assert.equal(completion.usage.prompt_tokens, (await ask(weather, { max_tokens: 1 })).usage.prompt_tokens);
});

bothChat("case 15: required: a call even where none is needed", async (ask) => {
  const completion = await ask([user("Hello")], { tools: [tool("get_weather"), tool("set_timer")], tool_choice: "required", max_tokens: 60 });
  const [choice] = completion.choices;
  if (choice.finish_reason === "length") return;  // cut inside the arguments
  assert.ok(callsOf(completion).length >= 1);
});

for (const [name, question] of [["get_time", weather], ["get_weather", [user("What time is it in Rome?")]]]) {
  bothChat(`case 15: named: ${name} is what is called`, async (ask) => {
    const completion = await ask(question, { tools: [tool("get_weather"), tool("get_time")], tool_choice: named(name) });
    const calls = callsOf(completion);
    assert.deepEqual(calls.map((call) => call.function.name), [name]);
    assert.ok(argumentsOf(calls[0]).city.length > 0);
  });
}

bothChat("case 13: a tool without parameters or description", async (ask) => {
  const completion = await ask([user("Stop the music.")], { tools: [named("stop")], tool_choice: named("stop"), max_tokens: 60 });
  if (completion.choices[0].finish_reason === "length") return;
  assert.equal(callsOf(completion)[0].function.name, "stop");
});

bothChat("rule B24: a call that the cap cuts is none", async (ask) => {
  const completion = await ask(weather, { tools: [tool("get_weather")], max_tokens: 8 });
  assert.equal(completion.choices[0].finish_reason, "length");
  if (!ask.streamed) assert.equal(callsOf(completion), undefined);
});

// --- results

const result = (id, content) => ({ role: "tool", tool_call_id: id, content });
const call = (id, name, args) => ({ id, type: "function", function: { name, arguments: JSON.stringify(args) } });
const sunny = JSON.stringify({ temperature: 21, condition: "sunny" });

bothChat("case 15: a result is answered from", async (ask) => {
  const tools = [tool("get_weather")];
  const { message } = (await ask(weather, { tools })).choices[0];
  const answer = await ask.text([...weather, message, result(message.tool_calls[0].id, sunny)], { tools });
  assert.match(answer, /sunny/);
});

bothChat("results of two calls", async (ask) => {
  const tools = [tool("get_weather"), tool("get_time")];
  const question = [user("What is the weather in Rome? What time is it in Cairo?")];
  const { message } = (await ask(question, { tools, max_tokens: 80 })).choices[0];
  const [first, second] = message.tool_calls;
  const answer = await ask.text([...question, message, result(first.id, sunny), result(second.id, '{"time": "10:30"}')], { tools, max_tokens: 60 });
  assert.match(answer, /sunny/);
  assert.match(answer, /10:30/);
});

for (const content of [null, "", [], undefined]) {
  bothChat(`case 10: a turn of calls with content ${content === undefined ? "missing" : JSON.stringify(content)}`, async (ask) => {
    const message = { role: "assistant", ...(content !== undefined && { content }), tool_calls: [call("c1", "get_weather", { city: "Oslo" })] };
    assert.match(await ask.text([...weather, message, result("c1", sunny)], { tools: [tool("get_weather")] }), /sunny/);
  });
}

bothChat("case 15: a result of an unknown call is accepted", async (ask) => {
  const message = { ...assistant(null), tool_calls: [call("c1", "get_weather", { city: "Oslo" })] };
  assert.match(await ask.text([...weather, message, result("of_an_earlier_life", sunny)], { tools: [tool("get_weather")] }), /sunny/);
});

bothChat("case 11: legacy function calls and results", async (ask) => {
  const messages = [...weather, { ...assistant(null), function_call: { name: "get_weather", arguments: '{"city": "Oslo"}' } },
    { role: "function", name: "get_weather", content: sunny }];
  assert.match(await ask.text(messages, { tools: [tool("get_weather")] }), /sunny/);
});

bothChat("rule B9: a result with an image is no fault", async (ask) => {
  const message = { ...assistant(null), tool_calls: [call("c1", "get_weather", { city: "Oslo" })] };
  const parts = [{ type: "text", text: sunny }, { type: "image_url", image_url: { url: "data:image/png;base64,AAAA" } }];
  const completion = await ask([...weather, message, result("c1", parts)], { tools: [tool("get_weather")], max_tokens: 4 });
  assert.ok(completion.usage.completion_tokens > 0);
});

bothChat("a result in parts", async (ask) => {
  const message = { ...assistant(null), tool_calls: [call("c1", "get_weather", { city: "Oslo" })] };
  const parts = [{ type: "text", text: sunny.slice(0, 10) }, { type: "text", text: sunny.slice(10) }];
  const say = (content) => ask.text([...weather, message, result("c1", content)], { tools: [tool("get_weather")] });
  assert.equal(await say(parts), await say(sunny));
});

bothChat("rule B8: hosted tools are dropped and the rest works", async (ask) => {
  const [called] = callsOf(await ask(weather, { tools: [{ type: "web_search" }, tool("get_weather")] }));
  assert.equal(called.function.name, "get_weather");
});

bothChat("tools beside a system message", async (ask) => {
  const completion = await ask([system("You are kind."), ...weather], { tools: [tool("get_weather")] });
  assert.equal(callsOf(completion)[0].function.name, "get_weather");
});

bothChat("rule B7: what was answered is accepted back: thinking, text and calls", async (ask) => {
  const question = [user("What is 47 plus 85?")];
  const { message } = (await ask(question, { reasoning_effort: "high", max_tokens: 400 })).choices[0];
  assert.ok(message.reasoning_content);
  assert.ok((await ask([...question, message, user("Thank you.")], { max_tokens: 4 })).usage.prompt_tokens > 0);
});

// --- the client's own runners

// A question whose answer takes one call; the functions say what was asked of them.
function runnable(asked) {
  return { type: "function", function: { name: "get_weather", description: functions.get_weather[0], parameters: functions.get_weather[1],
    parse: JSON.parse, function: (args) => (asked.push(args), JSON.parse(sunny)) } };
}

test("whole: runTools goes round until the answer", async () => {
  const asked = [];
  const runner = openai.chat.completions.runTools({ ...defaults, messages: weather, tools: [runnable(asked)] });
  assert.match(await runner.finalContent(), /sunny/);
  assert.deepEqual(asked, [{ city: "Oslo" }]);
  assert.equal((await runner.finalFunctionToolCall()).name, "get_weather");
  assert.deepEqual(JSON.parse(await runner.finalFunctionToolCallResult()), JSON.parse(sunny));
});

test("stream: runTools goes round until the answer", async () => {
  const asked = [];
  const runner = openai.chat.completions.runTools({ ...defaults, messages: weather, tools: [runnable(asked)], stream: true });
  let text = "";
  runner.on("content", (piece) => (text += piece));
  assert.match(await runner.finalContent(), /sunny/);
  assert.match(text, /sunny/);
  assert.deepEqual(asked, [{ city: "Oslo" }]);
});

test("stream: the helper tells arguments while they come", async () => {
  const stream = openai.chat.completions.stream({ ...defaults, messages: weather, tools: [tool("get_weather")] });
  const deltas = [];
  let done;
  stream.on("tool_calls.function.arguments.delta", (event) => deltas.push(event.arguments_delta));
  stream.on("tool_calls.function.arguments.done", (event) => (done = event));
  await stream.finalChatCompletion();
  assert.equal(done.name, "get_weather");
  assert.deepEqual(JSON.parse(done.arguments), { city: "Oslo" });
  assert.equal(deltas.join(""), done.arguments);
});

test("whole: zod's functions are parsed", async () => {
  const get = zodFunction({ name: "get_weather", description: functions.get_weather[0], parameters: z.object({ city: z.string() }) });
  const completion = await openai.chat.completions.parse({ ...defaults, messages: weather, tools: [get] });
  assert.deepEqual(completion.choices[0].message.tool_calls[0].function.parsed_arguments, { city: "Oslo" });
});
