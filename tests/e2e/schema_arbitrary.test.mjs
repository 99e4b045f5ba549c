// The generator of the property test makes what a schema allows, its bounds included, and its mutations do spoil: else the property
// would hold because nothing was asked. No cluster is needed.
import assert from "node:assert/strict";
import { test } from "node:test";
import Ajv2020 from "ajv/dist/2020.js";
import fc from "fast-check";
import { apply, mutation, pathsOf } from "./mutations.mjs";
import { SchemaArbitraries } from "./schema_arbitrary.mjs";

const document = { components: { schemas: {
  Leaf: { type: "object", required: ["name"], properties: { name: { type: "string", minLength: 2, maxLength: 5 } }, additionalProperties: false },
  Tree: { type: "object", required: ["leaf"], properties: { leaf: { $ref: "#/components/schemas/Leaf" }, next: { $ref: "#/components/schemas/Tree" } } },
  "a/b": { const: 7 },
} } };
const ref = (name) => ({ $ref: `#/components/schemas/${name}` });
const schemas = {
  "a closed range": { type: "integer", minimum: -3, maximum: 4 },
  "an open range": { type: "number", exclusiveMinimum: 0, exclusiveMaximum: 1 },
  "lengths": { type: "string", minLength: 3, maxLength: 6 },
  "a pattern": { type: "string", pattern: "^[A-Z]{2}-[0-9]+$" },
  "a map of named numbers": { type: "object", propertyNames: { pattern: "^[0-9]{1,3}$" }, additionalProperties: { type: "number" } },
  "a list": { type: "array", items: { type: "boolean" }, minItems: 1, maxItems: 3 },
  "several types": { type: ["null", "integer", "string"] },
  "a tree of itself": ref("Tree"),
  "an escaped name": ref("a~1b"),
  "one of": { oneOf: [{ type: "string" }, { type: "array", items: ref("Leaf") }] },
  "any of, beside properties": { type: "object", properties: { a: { type: "integer" } }, anyOf: [{ required: ["a"] }, { properties: { b: { enum: ["x"] } }, required: ["b"] }] },
  "all of": { allOf: [ref("Tree"), { type: "object", required: ["more"], properties: { more: { const: true } } }] },
  "a map": { type: "object", additionalProperties: { type: "integer" } },
};

const ajv = new Ajv2020({ strict: false });
ajv.addSchema(document, "document");
const relocated = (schema) => JSON.parse(JSON.stringify(schema).replaceAll('"#/', '"document#/'));

for (const [name, schema] of Object.entries(schemas)) {
  test(`values of ${name} are valid, and not always the same`, () => {
    const values = fc.sample(new SchemaArbitraries(document).of(schema), { numRuns: 300, seed: 1 });
    const validate = ajv.compile(relocated(schema));
    const valid = values.filter((value) => validate(value));
    assert.ok(valid.length >= 270, `${valid.length} of 300: ${ajv.errorsText(validate.errors)}`);
    const distinct = new Set(values.map((value) => JSON.stringify(value))).size;
    assert.ok(distinct >= (name === "an escaped name" ? 1 : 2));
  });
}

test("both ends of a range come up", () => {
  const values = new Set(fc.sample(new SchemaArbitraries({}).of({ type: "integer", minimum: 1, maximum: 100_000 }), { numRuns: 100, seed: 1 }));
  assert.ok(values.has(1) && values.has(100_000));
});

test("a reference that leads nowhere is named", () => {
  assert.throws(() => new SchemaArbitraries({}).of(ref("Nobody")), /Nobody/);
});

test("a property can be overridden, wherever it is", () => {
  const arbitraries = new SchemaArbitraries(document, { name: { const: "given" } });
  for (const value of fc.sample(arbitraries.of(ref("Tree")), { numRuns: 50, seed: 1 })) assert.equal(value.leaf.name, "given");
});

test("mutations change what is sent, in every way", () => {
  const body = { messages: [{ role: "user", content: "hi" }], temperature: 1 };
  const plain = JSON.stringify(body);
  const changed = new Map();
  for (const one of fc.sample(mutation, { numRuns: 1000, seed: 1 })) {
    const [same, all] = changed.get(one.kind) ?? [0, 0];
    changed.set(one.kind, [same + (String(apply(body, [one])) === plain), all + 1]);
  }
  assert.equal(changed.size, 8);
  for (const [kind, [same, all]] of changed) assert.ok(all > 20 && same < all / 3, `${kind}: ${same} of ${all} changed nothing`);
});

test("every place of a value has its path", () => {
  assert.deepEqual(pathsOf({ a: [1, { b: null }] }), [[], ["a"], ["a", "0"], ["a", "1"], ["a", "1", "b"]]);
});
