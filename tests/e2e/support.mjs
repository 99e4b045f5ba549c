// What the client tests share: the official clients, pointed at the cluster that run.py started, and the two ways to ask.
//
//   STRATA_URL         the cluster for everybody
//   STRATA_NARROW_URL  a second one, with keys, one sequence and short limits (narrow.test.mjs)
//
// both(name, check) makes two tests of one check: "whole: name" asks for one response, "stream: name" for events, which are put
// together again. What an application sees must be the same, so the check cannot tell them apart unless it looks at `ask.streamed`.
import assert from "node:assert/strict";
import { test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

export const url = process.env.STRATA_URL;
export const options = { maxRetries: 0, timeout: 120_000 };
export const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", ...options });
export const anthropic = new Anthropic({ baseURL: url, apiKey: "none", ...options });

export const user = (content) => ({ role: "user", content });
export const assistant = (content) => ({ role: "assistant", content });
export const system = (content) => ({ role: "system", content });

// Greedy, so that answers can be compared, and short, so that a hundred of them take seconds.
export const defaults = { model: "strata-demo", temperature: 0, max_tokens: 32 };
export const violin = [user("What is a violin?")];
export const story = [user("Tell me a story about a fox.")];

// The tools that the demo model was trained with; it calls them when a question wants one.
const parameters = (properties) => ({ type: "object", properties, required: Object.keys(properties) });
export const functions = {
  get_weather: ["Get the current weather of a city.", parameters({ city: { type: "string", description: "Name of the city" } })],
  get_time: ["Get the current time in a city.", parameters({ city: { type: "string", description: "Name of the city" } })],
  calculator: ["Compute an arithmetic expression.", parameters({ expression: { type: "string", description: "The expression to compute" } })],
  set_timer: ["Start a timer.", parameters({ minutes: { type: "integer", description: "Length in minutes" } })],
};

function register(ways, name, check) {
  for (const ask of ways) test(`${ask.streamed ? "stream" : "whole"}: ${name}`, () => check(ask));
}

// --- OpenAI's chat completions

export const tool = (name) => ({ type: "function", function: { name, description: functions[name][0], parameters: functions[name][1] } });

const chatWays = [false, true].map((streamed) => {
  // The completion; `fields` win over greedy and short.
  const ask = async (messages, fields = {}) => {
    const body = { ...defaults, messages, ...fields };
    if (!streamed) return openai.chat.completions.create(body);
    return joinChat(await openai.chat.completions.create({ ...body, stream: true, stream_options: { include_usage: true } }));
  };
  ask.streamed = streamed;
  ask.text = async (messages, fields) => (await ask(messages, fields)).choices[0].message.content;
  return ask;
});
export const bothChat = (name, check) => register(chatWays, name, check);

// Puts a stream together and holds every chunk against the form that clients rely on (api-cases 2, 3 and 14).
export async function joinChat(stream) {
  const choices = [];
  let first, usage;
  for await (const chunk of stream) {
    first ??= chunk;
    assert.equal(chunk.object, "chat.completion.chunk");
    for (const key of ["id", "created", "model", "system_fingerprint"]) assert.equal(chunk[key], first[key], `${key} changed`);
    assert.equal(usage, undefined, "a chunk behind the usage");
    if (chunk.usage) {
      assert.deepEqual(chunk.choices, []);
      usage = chunk.usage;
    }
    for (const piece of chunk.choices) joinChoice((choices[piece.index] ??= newChoice(piece)), piece);
  }
  assert.ok(choices.length > 0 && usage, "the stream ended early");
  for (const choice of choices) assert.notEqual(choice.finish_reason, null, "no finish_reason");
  return { ...first, object: "chat.completion", choices, usage };
}

function newChoice(piece) {
  assert.equal(piece.delta.role, "assistant", "the first chunk has the role");
  return { index: piece.index, message: { role: "assistant", content: null }, logprobs: null, finish_reason: null };
}

function joinChoice(choice, piece) {
  const { message } = choice, { delta } = piece;
  assert.equal(choice.finish_reason, null, "a piece behind the finish_reason");
  for (const key of ["content", "reasoning_content"]) {
    if (typeof delta[key] !== "string") continue;
    assert.ok(!delta[key].includes("\ufffd"), "a character was cut");
    if (key === "reasoning_content") assert.ok(!message.content, "thinking behind the answer");
    if (delta[key] !== "") message[key] = (message[key] ?? "") + delta[key];
  }
  for (const call of delta.tool_calls ?? []) joinCall((message.tool_calls ??= []), call);
  if (piece.logprobs) (choice.logprobs ??= { content: [] }).content.push(...piece.logprobs.content);
  if (piece.finish_reason !== null) {
    assert.deepEqual(delta, {}, "the finish chunk has an empty delta");
    Object.assign(choice, { finish_reason: piece.finish_reason }, piece.finish_detail && { finish_detail: piece.finish_detail });
  }
}

function joinCall(calls, { index, id, type, function: { name, arguments: piece } }) {
  if (calls[index] === undefined) {
    assert.equal(index, calls.length, "calls are numbered in order");
    assert.ok(id && name && type === "function" && piece === "", "a call begins with id, type, name and empty arguments");
    calls[index] = { id, type, function: { name, arguments: "" } };
  } else {
    assert.equal(index, calls.length - 1, "pieces of two calls are mixed");
    assert.ok(id === undefined && name === undefined, "only the first delta of a call has id and name");
    calls[index].function.arguments += piece;
  }
}

// --- OpenAI's text completions

const completionWays = [false, true].map((streamed) => {
  const ask = async (prompt, fields = {}) => {
    const body = { ...defaults, max_tokens: 12, prompt, ...fields };
    if (!streamed) return openai.completions.create(body);
    const choices = [];
    let first, usage;
    for await (const chunk of await openai.completions.create({ ...body, stream: true, stream_options: { include_usage: true } })) {
      first ??= chunk;
      assert.equal(chunk.object, "text_completion");
      assert.equal(chunk.id, first.id);
      usage = chunk.usage ?? usage;
      for (const piece of chunk.choices) joinText((choices[piece.index] ??= { ...piece, text: "", logprobs: null }), piece);
    }
    return { ...first, choices, usage };
  };
  ask.streamed = streamed;
  return ask;
});
export const bothCompletion = (name, check) => register(completionWays, name, check);

function joinText(choice, piece) {
  choice.text += piece.text;
  choice.finish_reason = piece.finish_reason;
  if (!piece.logprobs) return;
  choice.logprobs ??= {};
  for (const [key, values] of Object.entries(piece.logprobs)) choice.logprobs[key] = [...(choice.logprobs[key] ?? []), ...(values ?? [])];
}

// --- OpenAI's responses

export const responseTool = (name) => ({ type: "function", name, description: functions[name][0], parameters: functions[name][1], strict: false });

const responseWays = [false, true].map((streamed) => {
  const ask = async (input, fields = {}) => {
    const body = { model: defaults.model, temperature: 0, max_output_tokens: 32, store: false, input, ...fields };
    if (!streamed) return openai.responses.create(body);
    const order = new ResponseOrder();
    for await (const event of await openai.responses.create({ ...body, stream: true })) order.next(event);
    return order.end();
  };
  ask.streamed = streamed;
  ask.text = async (input, fields) => outputText(await ask(input, fields));
  return ask;
});
export const bothResponses = (name, check) => register(responseWays, name, check);

export const outputText = ({ output }) =>
  output.filter((item) => item.type === "message").flatMap((item) => item.content).filter((part) => part.type === "output_text").map((part) => part.text).join("");

// Holds the events of a response against their order (api-case 28): created, in_progress, each item's added, its parts and deltas with
// what is done equal to what was told, done; at the end the response with exactly these items.
class ResponseOrder {
  #first;
  #number = 0;
  #items = [];
  #open = null;
  #told = new Map();
  #final = null;

  next(event) {
    assert.equal(this.#final, null, `${event.type} behind the end`);
    this.#first ??= event.sequence_number;
    assert.equal(event.sequence_number, this.#first + this.#number++);
    const kind = event.type.replace(/^response\./, "");
    if (this.#number === 1) assert.equal(kind, "created");
    if (this.#number === 2) assert.equal(kind, "in_progress");
    if (["created", "in_progress"].includes(kind)) {
      assert.equal(event.response.status, "in_progress");
    } else if (["completed", "incomplete", "failed"].includes(kind)) {
      assert.equal(this.#open, null, "an item is open at the end");
      assert.equal(event.response.status, kind);
      this.#final = event.response;
    } else {
      assert.equal(event.output_index, kind === "output_item.added" ? this.#items.length : this.#items.length - 1, event.type);
      this.#item(kind, event);
    }
  }

  #item(kind, event) {
    if (kind === "output_item.added") {
      assert.equal(this.#open, null, "an item inside another one");
      this.#open = event.item.id;
      this.#items.push(event.item);
    } else if (kind === "output_item.done") {
      assert.equal(event.item.id, this.#open);
      assert.equal(event.item.type, this.#items.at(-1).type);
      this.#open = null;
      this.#items[this.#items.length - 1] = event.item;
    } else {
      assert.equal(event.item_id, this.#open, event.type);
      this.#piece(kind, event);
    }
  }

  // Deltas add up to what their done says; parts are added before and done behind them.
  #piece(kind, event) {
    const [what, step] = [kind.slice(0, kind.lastIndexOf(".")), kind.slice(kind.lastIndexOf(".") + 1)];
    const key = `${what} ${event.item_id} ${event.content_index ?? event.summary_index ?? ""}`;
    if (step === "delta") this.#told.set(key, (this.#told.get(key) ?? "") + event.delta);
    if (step === "added") assert.ok(!this.#told.has(key) && this.#told.set(key, null), "a part twice");
    if (step !== "done") return;
    if (event.part !== undefined) return assert.ok(this.#told.has(key), "a part that was not added is done");
    assert.equal(event.text ?? event.arguments, this.#told.get(key) ?? "", event.type);
  }

  end() {
    assert.ok(this.#final, "the stream ended early");
    assert.deepEqual(this.#final.output, this.#items);
    return this.#final;
  }
}

// --- Anthropic's messages

export const messageTool = (name) => ({ name, description: functions[name][0], input_schema: functions[name][1] });

const messageWays = [false, true].map((streamed) => {
  const ask = async (messages, fields = {}) => {
    const body = { ...defaults, messages, ...fields };
    if (!streamed) return anthropic.messages.create(body);
    const order = new EventOrder();
    const stream = anthropic.messages.stream(body).on("streamEvent", (event) => order.next(event));
    const message = await stream.finalMessage();
    order.end(message);
    return message;
  };
  ask.streamed = streamed;
  ask.text = async (messages, fields) => textOf(await ask(messages, fields));
  return ask;
});
export const bothMessages = (name, check) => register(messageWays, name, check);

export const textOf = (message) => message.content.filter((block) => block.type === "text").map((block) => block.text).join("");

// Holds the events of a stream against their order (api-case 32): message_start, each block's start, deltas and stop with rising
// indices, message_delta, message_stop; pings anywhere behind the first.
class EventOrder {
  blocks = [];
  open = null;
  state = "begin";

  next(event) {
    if (event.type === "message_start") {
      assert.equal(this.state, "begin");
      assert.deepEqual(event.message.content, []);
      assert.equal(event.message.stop_reason, null);
      assert.ok(event.message.usage.input_tokens > 0, "message_start has the size of the prompt");
      this.promptTokens = event.message.usage.input_tokens;
      this.state = "blocks";
    } else if (event.type === "message_delta") {
      assert.equal(this.state, "blocks");
      assert.equal(this.open, null, "a block is open at the end");
      this.state = "told";
    } else if (event.type === "message_stop") {
      assert.equal(this.state, "told");
      this.state = "end";
    } else {
      assert.equal(this.state, "blocks", event.type);
      this.#block(event);
    }
  }

  #block(event) {
    if (event.type === "content_block_start") {
      assert.equal(this.open, null, "a block inside another one");
      assert.equal(event.index, this.blocks.length);
      this.open = event.index;
      this.blocks.push(event.content_block.type);
      return;
    }
    assert.equal(event.index, this.open);
    if (event.type === "content_block_stop") {
      this.open = null;
      return;
    }
    const kinds = { text: ["text_delta"], thinking: ["thinking_delta", "signature_delta"], tool_use: ["input_json_delta"] };
    assert.ok(kinds[this.blocks[this.open]].includes(event.delta.type), `${event.delta.type} in a block of ${this.blocks[this.open]}`);
  }

  end(message) {
    assert.equal(this.state, "end");
    assert.deepEqual(message.content.map((block) => block.type), this.blocks);
    const { input_tokens, cache_read_input_tokens, cache_creation_input_tokens } = message.usage;
    assert.equal(input_tokens + cache_read_input_tokens + cache_creation_input_tokens, this.promptTokens);
  }
}

// --- errors

// The request must be refused with this class of the client's, and the error's fields; both clients have `status`.
export async function refused(promise, errorClass, fields = {}) {
  await assert.rejects(promise, (error) => {
    assert.ok(error instanceof errorClass, `${error.constructor.name}: ${error.message}`);
    for (const [key, value] of Object.entries(fields)) {
      if (value instanceof RegExp) assert.match(String(error[key]), value);
      else assert.equal(error[key], value, key);
    }
    return true;
  });
}

// --- metrics

export async function metric(name) {
  const text = await (await fetch(`${url}/metrics`)).text();
  const rows = [...text.matchAll(new RegExp(`^${name.replace(/[{}"=,]/g, "\\$&")}(?:\\{.*\\})? (\\S+)$`, "gm"))];
  assert.ok(rows.length > 0, `/metrics has no ${name}`);
  return rows.reduce((sum, row) => sum + Number(row[1]), 0);
}

// Polls; fails with `what` when `seconds` are over.
export async function eventually(condition, what, seconds = 20) {
  for (const end = Date.now() + 1000 * seconds; !(await condition()); ) {
    assert.ok(Date.now() < end, `${what}: not within ${seconds} s`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
