// openai's client: answers of a given form: JSON, a schema, a grammar, tools held to theirs; and with them every character a token can
// cut. Each asked whole and as a stream.
import assert from "node:assert/strict";
import { test } from "node:test";
import Ajv2020 from "ajv/dist/2020.js";
import OpenAI from "openai";
import { zodFunction, zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { bothChat, defaults, openai, refused, story, system, tool, user, violin } from "./support.mjs";

const anna = [system("Answer only with JSON."), user("Extract the name, age and city: Anna is 9 years old and lives in Oslo.")];
const hot = { temperature: 1, top_k: 0, top_p: 1, max_tokens: 400 };
const schemaOf = (schema, fields) => ({ type: "json_schema", json_schema: { name: "answer", schema, ...fields } });
const ajv = new Ajv2020({ strict: false });

// --- case 17: any object

bothChat("case 17: json_object: one object and nothing else", async (ask) => {
  const [choice] = (await ask(anna, { response_format: { type: "json_object" }, max_tokens: 100 })).choices;
  assert.equal(choice.finish_reason, "stop");
  assert.match(choice.message.content, /^\{[^]*\}$/);
  assert.equal(JSON.parse(choice.message.content).name, "Anna");
});

for (const seed of [1, 2]) {
  bothChat(`case 17: json_object of a question that has nothing to do with JSON, seed ${seed}`, async (ask) => {
    const [choice] = (await ask(story, { ...hot, response_format: { type: "json_object" }, seed })).choices;
    if (choice.finish_reason === "length") return assert.ok(choice.message.content.startsWith("{"));
    assert.equal(typeof JSON.parse(choice.message.content), "object");
  });
}

bothChat("case 17: json_object that the cap cuts says length", async (ask) => {
  const [choice] = (await ask(anna, { response_format: { type: "json_object" }, max_tokens: 3 })).choices;
  assert.equal(choice.finish_reason, "length");
  assert.ok(choice.message.content.startsWith("{"));
});

// --- schemas

const person = { type: "object", properties: { name: { type: "string", maxLength: 20 }, age: { type: "integer", minimum: 0, maximum: 120 }, city: { enum: ["Oslo", "Rome"] } },
  required: ["name", "age", "city"], additionalProperties: false };
const schemas = {
  "an object": person,
  "a list": { type: "array", items: { type: "integer", minimum: -5, maximum: 5 }, minItems: 2, maxItems: 3 },
  "one of several": { anyOf: [{ type: "boolean" }, { type: "null" }, { const: "neither" }] },
  "references": { $ref: "#/$defs/pair", $defs: { pair: { type: "object", properties: { left: { $ref: "#/$defs/leaf" }, right: { $ref: "#/$defs/leaf" } }, required: ["left", "right"], additionalProperties: false },
    leaf: { type: "string", maxLength: 6 } } },
  "a pattern": { type: "object", properties: { code: { type: "string", pattern: "^[A-Z]{2}-[0-9]{3}$" } }, required: ["code"], additionalProperties: false },
  "formats": { type: "object", properties: { day: { type: "string", format: "date" }, id: { type: "string", format: "uuid" } }, required: ["day", "id"], additionalProperties: false },
  "nested": { type: "object", properties: { people: { type: "array", items: person, minItems: 1, maxItems: 2 } }, required: ["people"], additionalProperties: false },
};
for (const [name, schema] of Object.entries(schemas)) {
  bothChat(`json_schema: ${name}: valid at temperature 1`, async (ask) => {
    for (const seed of [1, 2, 3]) {
      const [choice] = (await ask(story, { ...hot, response_format: schemaOf(schema), seed })).choices;
      assert.equal(choice.finish_reason, "stop", `seed ${seed}: ${choice.message.content}`);
      assert.ok(ajv.validate(schema, JSON.parse(choice.message.content)), `seed ${seed}: ${choice.message.content}: ${ajv.errorsText()}`);
    }
  });
}

bothChat("json_schema: the model's own answer is kept where it fits", async (ask) => {
  const [choice] = (await ask(anna, { response_format: schemaOf(person), max_tokens: 100 })).choices;
  assert.deepEqual(JSON.parse(choice.message.content), { name: "Anna", age: 9, city: "Oslo" });
});

for (const [keyword, schema] of [
  ["not", { not: { type: "string" } }],
  ["patternProperties", { type: "object", patternProperties: { "^a": {} } }],
  ["multipleOf", { type: "integer", multipleOf: 3 }],
]) {
  bothChat(`rule B18: json_schema: ${keyword} is refused by its name`, (ask) =>
    refused(ask(violin, { response_format: schemaOf(schema) }), OpenAI.BadRequestError, { status: 400, message: new RegExp(keyword) }));
}

bothChat("rule B19: a schema holds for the answer and not for the thinking", async (ask) => {
  const schema = { type: "object", properties: { sum: { type: "integer" } }, required: ["sum"], additionalProperties: false };
  const { message } = (await ask([user("What is 47 plus 85?")], { max_tokens: 500, reasoning_effort: "high", response_format: schemaOf(schema) })).choices[0];
  assert.ok(message.reasoning_content.length > 0);
  assert.ok(ajv.validate(schema, JSON.parse(message.content)), message.content);
});

bothChat("rule B21: a schema together with tools: the answer is one or the other", async (ask) => {
  const fields = { tools: [tool("get_weather")], response_format: schemaOf(person), max_tokens: 100 };
  const [said] = (await ask(anna, fields)).choices;
  assert.equal(said.finish_reason, "stop");
  assert.ok(ajv.validate(person, JSON.parse(said.message.content)), said.message.content);
  const [called] = (await ask([user("What is the weather in Oslo?")], fields)).choices;
  assert.deepEqual(JSON.parse(called.message.tool_calls[0].function.arguments), { city: "Oslo" });
});

bothChat("rule B20: a tool whose schema cannot be held to is offered all the same", async (ask) => {
  const odd = { type: "function", function: { ...tool("get_weather").function, parameters: { type: "object", properties: { city: { type: "string", not: { const: "x" } } }, required: ["city"] } } };
  const weather = [user("What is the weather in Oslo?")];
  const { message } = (await ask(weather, { tools: [odd] })).choices[0];
  assert.deepEqual(JSON.parse(message.tool_calls[0].function.arguments), { city: "Oslo" });
  const strict = { ...odd, function: { ...odd.function, strict: true } };
  await refused(ask(weather, { tools: [strict] }), OpenAI.BadRequestError, { status: 400, message: /not/ });
});

// --- the client's helpers

const Person = z.object({ name: z.string(), age: z.number().int(), city: z.string() });

test("whole: zod's objects are parsed", async () => {
  const completion = await openai.chat.completions.parse({ ...defaults, messages: anna, max_tokens: 100, response_format: zodResponseFormat(Person, "person") });
  assert.deepEqual(completion.choices[0].message.parsed, { name: "Anna", age: 9, city: "Oslo" });
});

test("stream: zod's objects are parsed while they come", async () => {
  const stream = openai.chat.completions.stream({ ...defaults, messages: anna, max_tokens: 100, response_format: zodResponseFormat(Person, "person") });
  const partial = [];
  stream.on("content.delta", ({ parsed }) => partial.push(structuredClone(parsed)));
  assert.deepEqual((await stream.finalChatCompletion()).choices[0].message.parsed, { name: "Anna", age: 9, city: "Oslo" });
  assert.ok(partial.some((value) => value?.name === "Anna" && value.city === undefined), "nothing was there before the end");
});

test("whole: zod's functions are strict", async () => {
  const get = zodFunction({ name: "get_weather", parameters: z.object({ city: z.enum(["Rome", "Lima"]) }) });
  const completion = await openai.chat.completions.parse({ ...defaults, messages: [user("What is the weather in Oslo?")], tools: [get], tool_choice: "required" });
  assert.ok(["Rome", "Lima"].includes(completion.choices[0].message.tool_calls[0].function.parsed_arguments.city));
});

// --- tools

for (const choice of ["required", { type: "function", function: { name: "set_timer" } }]) {
  bothChat(`case 15: ${typeof choice === "string" ? choice : "named"}: a valid call whatever was asked, at temperature 1`, async (ask) => {
    const tools = [tool("set_timer"), tool("get_weather")];
    for (const seed of [1, 2]) {
      const completion = await ask(violin, { ...hot, tools, tool_choice: choice, seed, parallel_tool_calls: false });
      assert.equal(completion.choices[0].finish_reason, "tool_calls", JSON.stringify(completion.choices));
      const [call] = completion.choices[0].message.tool_calls;
      const schema = tools.find((candidate) => candidate.function.name === call.function.name).function.parameters;
      assert.ok(ajv.validate(schema, JSON.parse(call.function.arguments)), call.function.arguments);
      if (typeof choice !== "string") assert.equal(call.function.name, "set_timer");
    }
  });
}

// --- GBNF

bothChat("grammar: GBNF", async (ask) => {
  const text = await ask.text(violin, { ...hot, seed: 1, grammar: 'root ::= ("yes" | "no") "!"{2,3}' });
  assert.match(text, /^(yes|no)!{2,3}$/);
});

bothChat("grammar: a fault has its place", (ask) =>
  refused(ask(violin, { grammar: 'root ::= "a" (' }), OpenAI.BadRequestError, { status: 400, param: "grammar" }));

// --- case 21: characters whose bytes are several tokens: the answer is forced to be them

const spoken = ["👩‍👩‍👧‍👦 👍🏽 🇳🇴", "日本語の文字", "e\u0301a\u0308o\u0302"];
for (const words of spoken) {
  const fields = { response_format: schemaOf({ const: words }), max_tokens: 200 };
  bothChat(`case 21: ${words} is written whole`, async (ask) => {
    assert.equal(await ask.text(violin, fields), JSON.stringify(words));
  });
  bothChat(`case 21: ${words} is cut between characters by any cap`, async (ask) => {
    const { completion_tokens } = (await ask(violin, fields)).usage;
    for (let cap = 2; cap < completion_tokens; cap += 3) {
      const [choice] = (await ask(violin, { ...fields, max_tokens: cap })).choices;
      assert.equal(choice.finish_reason, "length");
      const said = choice.message.content ?? "";
      assert.ok(said.isWellFormed() && JSON.stringify(words).startsWith(said), `${cap}: ${said}`);
    }
  });
}
