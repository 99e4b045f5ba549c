// openai's client: the model list, what is not offered, and the classes of its errors.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI, { toFile } from "openai";
import { defaults, openai, options, refused, url, violin } from "./support.mjs";

test("case 25: the list has the model, its status and context", async () => {
  const { object, data } = await openai.models.list();
  assert.equal(object, "list");
  const model = data.find(({ id }) => id === "strata-demo");
  assert.equal(model.object, "model");
  assert.ok(Number.isInteger(model.created));
  assert.equal(typeof model.owned_by, "string");
  assert.equal(model.status, "ready");
  assert.equal(model.context_length, 4096);
});

test("case 25: the pages of the client are walked through", async () => {
  const ids = [];
  for await (const { id } of openai.models.list()) ids.push(id);
  assert.ok(ids.includes("strata-demo"));
});

test("case 25: one model", async () => {
  const [listed] = (await openai.models.list()).data;
  assert.deepEqual({ ...(await openai.models.retrieve("strata-demo")) }, { ...listed });
});

for (const id of ["no-such-model", "an/id/with/slashes", "ünïcode 👍"]) {
  test(`case 25: ${id} is not found`, () =>
    refused(openai.models.retrieve(id), OpenAI.NotFoundError, { status: 404, code: "model_not_found", type: "invalid_request_error" }));
}

// --- case 26: what is not offered

for (const [name, ask] of [
  ["embeddings", (client) => client.embeddings.create({ model: "m", input: "x" })],
  ["moderations", (client) => client.moderations.create({ input: "x" })],
  ["images", (client) => client.images.generate({ prompt: "x" })],
  ["speech", (client) => client.audio.speech.create({ model: "m", voice: "alloy", input: "x" })],
  ["transcriptions", async (client) => client.audio.transcriptions.create({ model: "m", file: await toFile(Buffer.from("x"), "x.wav") })],
  ["files", (client) => client.files.list()],
  ["batches", (client) => client.batches.list()],
]) {
  test(`case 26: ${name}: a typed error that names the endpoint`, () =>
    refused(ask(openai), OpenAI.InternalServerError, { status: 501, type: "not_supported_error", code: "not_supported", message: /not supported/ }));
}

// --- the client's error classes; openai_messages.test.mjs has those of 400, narrow.test.mjs those of 401 and 429

test("a path that is nowhere", () =>
  refused(openai.get("/nowhere"), OpenAI.NotFoundError, { status: 404, code: "not_found", param: null }));

test("case 3: stream_options without stream", () =>
  refused(openai.chat.completions.create({ ...defaults, messages: violin, stream_options: { include_usage: true } }), OpenAI.BadRequestError,
    { param: "stream_options" }));

test("case 8: stream a word", () =>
  refused(openai.post("/chat/completions", { body: { ...defaults, messages: violin, stream: "yes" } }), OpenAI.BadRequestError, { param: "stream" }));

test("errors carry the request's id", async () => {
  const error = await openai.models.retrieve("no-such-model").catch((e) => e);
  assert.ok(error.requestID.length > 0);
  assert.equal(error.requestID, error.headers.get("x-request-id"));
});

test("rule I11: texts hold no more of a request than a piece", async () => {
  const error = await openai.chat.completions.create({ ...defaults, messages: violin, reasoning_effort: `\u001b[31m${"x".repeat(5000)}` }).catch((e) => e);
  assert.ok(error.message.length < 400 && !error.message.includes("\u001b"), error.message);
});

test("a client that gives up is told so by its own class", async () => {
  const hasty = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", ...options, timeout: 1 });
  await assert.rejects(hasty.chat.completions.create({ ...defaults, messages: violin, max_tokens: 2000, temperature: 1 }), OpenAI.APIConnectionTimeoutError);
});
