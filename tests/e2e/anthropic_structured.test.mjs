// Anthropic's client: answers of a given form; each asked whole and as a stream.
import assert from "node:assert/strict";
import { test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import Ajv2020 from "ajv/dist/2020.js";
import { z } from "zod";
import { anthropic, bothMessages, defaults, messageTool, refused, story, textOf, user, violin } from "./support.mjs";

const anna = { messages: [user("Extract the name, age and city: Anna is 9 years old and lives in Oslo.")], system: "Answer only with JSON.", max_tokens: 100 };
const hot = { temperature: 1, top_k: 0, top_p: 1, max_tokens: 300 };
const person = { type: "object", properties: { name: { type: "string", maxLength: 20 }, age: { type: "integer", minimum: 0, maximum: 120 }, city: { type: "string", maxLength: 20 } },
  required: ["name", "age", "city"], additionalProperties: false };
const format = (schema) => ({ type: "json_schema", schema });
const ajv = new Ajv2020({ strict: false });

for (const [name, fields] of [["output_config", { output_config: { format: format(person) } }], ["output_format", { output_format: format(person) }]]) {
  bothMessages(`${name}: a schema: valid at temperature 1`, async (ask) => {
    for (const seed of [1, 2]) {
      const message = await ask(story, { ...hot, ...fields, seed });
      assert.equal(message.stop_reason, "end_turn");
      assert.ok(ajv.validate(person, JSON.parse(textOf(message))), textOf(message));
    }
  });
}

bothMessages("output_format: the model's own answer is kept where it fits", async (ask) => {
  const { messages, ...fields } = anna;
  assert.deepEqual(JSON.parse(await ask.text(messages, { ...fields, output_config: { format: format(person) } })), { name: "Anna", age: 9, city: "Oslo" });
});

bothMessages("rule B18: a schema that cannot be held to is refused by its keyword", (ask) =>
  refused(ask(violin, { output_config: { format: format({ type: "integer", multipleOf: 3 }) } }), Anthropic.BadRequestError, { status: 400, message: /multipleOf/ }));

bothMessages("a schema together with tools: the answer is one or the other", async (ask) => {
  const fields = { tools: [messageTool("get_weather")], output_config: { format: format(person) }, max_tokens: 100 };
  assert.ok(ajv.validate(person, JSON.parse(await ask.text(anna.messages, { ...fields, system: anna.system }))));
  assert.equal((await ask([user("What is the weather in Oslo?")], fields)).stop_reason, "tool_use");
});

for (const tool_choice of [{ type: "any" }, { type: "tool", name: "set_timer" }]) {
  bothMessages(`case 33: ${tool_choice.type}: a valid use whatever was asked, at temperature 1`, async (ask) => {
    const tools = [messageTool("set_timer"), messageTool("get_weather")];
    for (const seed of [1, 2]) {
      const message = await ask(violin, { ...hot, tools, tool_choice: { ...tool_choice, disable_parallel_tool_use: true }, seed });
      assert.equal(message.stop_reason, "tool_use");
      const [use] = message.content;
      assert.ok(ajv.validate(tools.find(({ name }) => name === use.name).input_schema, use.input), JSON.stringify(use));
    }
  });
}

const words = "👩‍👩‍👧‍👦 日本語 e\u0301";
bothMessages("case 21: characters whose bytes are several tokens", async (ask) => {
  assert.equal(JSON.parse(await ask.text(violin, { max_tokens: 200, output_config: { format: format({ const: words }) } })), words);
});

bothMessages("case 21: they are cut between characters by any cap", async (ask) => {
  for (let cap = 2; cap < 20; cap += 3) {
    const message = await ask(violin, { max_tokens: cap, output_config: { format: format({ const: words }) } });
    assert.equal(message.stop_reason, "max_tokens");
    assert.ok(JSON.stringify(words).startsWith(textOf(message)), textOf(message));
  }
});

test("whole: zod's objects are parsed", async () => {
  const Person = z.object({ name: z.string(), age: z.number().int(), city: z.string() });
  const message = await anthropic.messages.parse({ ...defaults, ...anna, output_config: { format: zodOutputFormat(Person) } });
  assert.deepEqual(message.parsed_output, { name: "Anna", age: 9, city: "Oslo" });
});
