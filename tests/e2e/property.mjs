// Property test of the HTTP API against its own document: requests are made from /openapi.json, as it allows them and spoilt, and sent
// to a running cluster. Whatever is asked,
//   - the status is one that the document names for this operation, and 5xx only where it means "not offered" (501), "not now" (503) or "not in the time you gave" (504);
//   - a response is what the document says of that status: JSON or events, and valid against the schema;
//   - an error has the shape of its dialect, a stream ends as its dialect ends one;
//   - the server is there afterwards.
//
//   node property.mjs --url http://127.0.0.1:8080 [--seconds 600] [--seed 7] [--only /v1/messages] [--key KEY]
//
// property.test.mjs runs it for a short time from a fixed seed; docs/testing.md has the command for a long one. A failure is shrunk and
// printed with its seed and path.
import assert from "node:assert/strict";
import { parseArgs } from "node:util";
import { fileURLToPath } from "node:url";
import Ajv2020 from "ajv/dist/2020.js";
import fc from "fast-check";
import { apply, mutation } from "./mutations.mjs";
import { SchemaArbitraries } from "./schema_arbitrary.mjs";

const schemaId = "document";
// Answers of a few tokens: the property is about the protocol. Lists of prompts and choices multiply them.
const small = (maximum) => ({ type: "integer", minimum: 1, maximum });
const overrides = {
  max_tokens: small(4), max_completion_tokens: small(4), max_output_tokens: small(16), n: small(2), best_of: small(2),
  background: { enum: [false] },
};
const caps = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
// A spoilt request may have lost its cap; nobody waits for such an answer.
const patienceMs = 10_000;
const atOnce = 4;

export class ApiProperties {
  counts = { sent: 0, accepted: 0, refused: 0, leftEarly: 0, byStatus: {} };

  constructor(document, { url, key }) {
    this.document = document;
    this.url = url;
    this.headers = key ? { authorization: `Bearer ${key}` } : {};
    this.arbitraries = new SchemaArbitraries(document, overrides);
    this.ajv = new Ajv2020({ strict: false, allErrors: false, validateFormats: false });
    this.ajv.addSchema(document, schemaId);
    this.operations = Object.entries(document.paths).flatMap(([path, item]) =>
      Object.entries(item).filter(([method]) => ["get", "post", "delete", "put"].includes(method))
        .map(([method, operation]) => ({ path, method, operation: this.#resolve(operation), name: `${method.toUpperCase()} ${path}` })));
  }

  static async fetch(options) {
    const headers = options.key ? { authorization: `Bearer ${options.key}` } : {};
    const read = async (path, init = {}) => (await fetch(options.url + path, { headers, ...init })).json();
    const api = new ApiProperties(await read("/openapi.json"), options);
    // Names that are there, beside all the others that are asked for.
    const stored = () => read("/v1/responses", { method: "POST", body: JSON.stringify({ input: "hi", max_output_tokens: 16, store: true }) });
    api.known = { model: (await read("/v1/models")).data.map(({ id }) => id), response_id: [(await stored()).id, (await stored()).id] };
    return api;
  }

  // The properties of one operation: what it is called, the property of fast-check, its share of the time, and how often it is enough to try.
  propertiesOf(target) {
    const body = target.operation.requestBody?.content?.["application/json"]?.schema;
    const parameters = this.#parameters(target);
    if (body === undefined) {
      const property = fc.asyncProperty(parameters, (filled) => this.#send(target, filled));
      return [{ name: target.name, property, weight: 1, runsMax: target.path.includes("{") ? 200 : 20 }];
    }
    const allowed = this.arbitraries.of(body).filter(this.#validator(this.#pointerTo(target)));
    const valid = fc.tuple(fc.boolean(), allowed).map(([together, value]) => capped(together ? coherent(value) : value));
    // What generates has more to it, and takes longer.
    const weight = target.operation.responses[200].content["text/event-stream"] ? 4 : 1;
    const spoilt = fc.array(mutation, { minLength: 1, maxLength: 3 });
    return [
      { name: `${target.name}: as the document allows`, weight, runsMax: 1_000_000,
        property: fc.asyncProperty(parameters, valid, (filled, value) => this.#send(target, filled, JSON.stringify(value))) },
      { name: `${target.name}: spoilt`, weight, runsMax: 1_000_000,
        property: fc.asyncProperty(parameters, valid, spoilt, (filled, value, mutations) => this.#send(target, filled, apply(value, mutations))) },
    ];
  }

  #resolve(object) {
    return this.arbitraries.resolve(object);
  }

  #pointerTo({ path, method }) {
    return `/paths/${escape(path)}/${method}/requestBody/content/${escape("application/json")}/schema`;
  }

  #validator(pointer) {
    return this.ajv.compile({ $ref: `${schemaId}#${encodeURI(pointer).replaceAll("#", "%23")}` });
  }

  // Path parameters, and now and then a query that nobody reads.
  #parameters({ path, operation }) {
    const named = Object.fromEntries((operation.parameters ?? []).map((parameter) => this.#resolve(parameter)).filter((parameter) => parameter.in === "path")
      .map(({ name, schema }) => [name, fc.oneof(fc.constantFrom(...this.known[name]), this.arbitraries.of(schema), fc.string({ unit: "binary", minLength: 1 }))]));
    const query = fc.oneof({ weight: 4, arbitrary: fc.constant("") }, { weight: 1, arbitrary: fc.webQueryParameters().map((text) => `?${text}`) });
    return fc.record({ path: fc.record(named), query });
  }

  async #send(target, { path, query }, body) {
    let where = target.path;
    for (const [name, value] of Object.entries(path)) {
      const part = encodeURIComponent(wellFormed(String(value)));
      fc.pre(part !== "" && part !== "." && part !== "..");
      where = where.replace(`{${name}}`, part);
    }
    ++this.counts.sent;
    const controller = new AbortController();
    const timer = setTimeout(() => controller.abort(), patienceMs);
    try {
      const response = await fetch(this.url + where + query, { method: target.method.toUpperCase(), body, signal: controller.signal,
        headers: { ...this.headers, ...(body !== undefined && { "content-type": "application/json" }) } });
      this.#check(target, response.status, response.headers.get("content-type") ?? "", await response.text());
    } catch (error) {
      if (error.name !== "AbortError") throw error;
      ++this.counts.leftEarly;
    } finally {
      clearTimeout(timer);
    }
  }

  #check(target, status, contentType, text) {
    const { counts } = this;
    counts.byStatus[status] = (counts.byStatus[status] ?? 0) + 1;
    ++counts[status < 400 ? "accepted" : "refused"];
    const said = `${target.name}: ${status} ${contentType}: ${text.slice(0, 500)}`;
    assert.ok(status < 500 || [501, 503, 504].includes(status), said);
    const described = target.operation.responses[status];
    assert.ok(described !== undefined, `the document does not name this status: ${said}`);
    const type = contentType.split(";")[0];
    const contents = this.#resolve(described).content;
    assert.ok(contents?.[type] !== undefined, `the document does not name this content type: ${said}`);
    if (status >= 400) checkError(target.path, status, text, said);
    if (type === "text/event-stream") return this.#checkEvents(target, status, type, text);
    if (type === "application/json") this.#checkSchema(target, status, type, JSON.parse(text), said);
  }

  #checkEvents(target, status, type, text) {
    const openai = dialectOf(target.path) === "openai" && target.path !== "/v1/responses";
    const events = text.split("\n\n").filter((event) => event !== "" && !event.startsWith(":"));
    assert.ok(text.endsWith("\n\n") && events.length > 0, `an unfinished stream: ${text.slice(-200)}`);
    if (openai) assert.equal(events.pop(), "data: [DONE]");
    for (const event of events) {
      const [data, name] = event.split("\n").reverse();
      const value = JSON.parse(data.replace(/^data: /, ""));
      if (!openai) assert.equal(name, `event: ${value.type}`);
      this.#checkSchema(target, status, type, value, event);
    }
  }

  #checkSchema(target, status, type, value, said) {
    const described = this.#resolve(target.operation.responses[status]).content[type];
    const schema = described.itemSchema ?? described.schema;
    if (schema === undefined) return;
    const validate = (this.validators ??= new Map()).get(schema) ?? this.ajv.compile(relocated(schema));
    this.validators.set(schema, validate);
    assert.ok(validate(value), `${this.ajv.errorsText(validate.errors)}: ${said}`);
  }
}

// References of a schema that stands alone point into the document.
function relocated(schema) {
  if (schema === null || typeof schema !== "object") return schema;
  if (Array.isArray(schema)) return schema.map(relocated);
  return Object.fromEntries(Object.entries(schema).map(([key, value]) => [key, key === "$ref" && typeof value === "string" ? schemaId + value : relocated(value)]));
}

const escape = (part) => part.replaceAll("~", "~0").replaceAll("/", "~1");
const wellFormed = (text) => text.toWellFormed();
const dialectOf = (path) => (path.startsWith("/v1/messages") ? "anthropic" : "openai");

// A cap that the document makes optional is given all the same.
function capped(value) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return value;
  if (caps.some((name) => Number.isInteger(value[name]) && value[name] > 0)) return value;
  return { ...value, max_tokens: 2, max_output_tokens: 16 };
}

// Members that no schema can hold against each other: without the one the other is refused, and little would get further.
function coherent(value) {
  if (value === null || typeof value !== "object" || Array.isArray(value)) return value;
  const { stream_options, top_logprobs, tool_choice, response_format, json_schema, grammar, echo, best_of, logit_bias, ...rest } = value;
  const [form] = Object.entries({ response_format, json_schema, grammar }).filter(([, given]) => given !== undefined);
  return {
    ...rest,
    ...(rest.stream === true && stream_options && { stream_options }),
    ...(rest.logprobs === true && top_logprobs !== undefined && { top_logprobs }),
    ...(rest.tools?.length > 0 && tool_choice !== undefined && { tool_choice }),
    ...(form && Object.fromEntries([form])),
    ...(rest.logprobs === undefined && echo !== undefined && { echo }),
  };
}

function checkError(path, status, text, said) {
  const body = JSON.parse(text);
  if (body.error === undefined && status === 503) return;  // health
  const { error } = body;
  assert.ok(typeof error.message === "string" && error.message.length > 0 && typeof error.type === "string", said);
  assert.ok(error.message.length < 600, `a long message: ${said}`);
  if (dialectOf(path) === "anthropic") return assert.equal(body.type, "error", said);
  for (const key of ["param", "code"]) assert.ok(error[key] === null || typeof error[key] === "string", said);
}

// Runs every operation's properties, some at a time, as a server has more than one client.
export async function run({ url, key, seconds, seed, only, log = () => {} }) {
  const api = await ApiProperties.fetch({ url, key });
  const waiting = api.operations.filter(({ path }) => !only || path === only).flatMap((target) => api.propertiesOf(target));
  assert.ok(waiting.length > 0, "there is nothing to ask");
  const share = (1000 * seconds * atOnce) / Math.max(4 * atOnce, waiting.reduce((sum, { weight }) => sum + weight, 0));
  const untried = [];
  const work = async () => {
    for (let next; (next = waiting.shift()) !== undefined; ) {
      const { numRuns } = await check(next.property, { seed, numRuns: next.runsMax, interruptAfterTimeLimit: next.weight * share });
      log(`${next.name}: ${numRuns} requests`);
      if (numRuns === 0) untried.push(next.name);
    }
  };
  await Promise.all(Array.from({ length: atOnce }, work));
  assert.equal((await fetch(`${url}/live`)).status, 200, "the server is away");
  assert.deepEqual(untried, [], "there was no time for these");
  return api;
}

async function check(property, parameters) {
  const details = await fc.check(property, parameters);
  // Out of time is as good as done; a failure has been made small by then, or as small as there was time for.
  if (details.failed && details.counterexample !== null) throw new Error(fc.defaultReportMessage(details), { cause: details.errorInstance });
  return details;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({ options: { url: { type: "string", default: "http://127.0.0.1:8080" }, key: { type: "string" }, only: { type: "string" },
    seconds: { type: "string", default: "600" }, seed: { type: "string", default: String(Date.now() & 0x7fffffff) } } });
  console.log(`seed ${values.seed}`);
  const api = await run({ ...values, seconds: Number(values.seconds), seed: Number(values.seed), log: console.log });
  console.log(JSON.stringify(api.counts));
}
