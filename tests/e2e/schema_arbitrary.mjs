// JSON Schema -> an arbitrary of fast-check: values that the schema allows, for the part of the language that /openapi.json uses
// ($ref into the document, type, enum, const, oneOf, anyOf, allOf, bounds, patterns, items, properties). Whoever calls validates the
// values and leaves out the few that a keyword refuses that is not known here (not, if).
import fc from "fast-check";

// Longest way through nested schemas; below it optional members are left out and lists are empty.
const depthMax = 7;
const stringMax = 40;
const listMax = 4;

export class SchemaArbitraries {
  #document;
  #overrides;

  // overrides: name of a property -> schema that stands for its own, so that what is generated stays cheap to answer.
  constructor(document, overrides = {}) {
    this.#document = document;
    this.#overrides = overrides;
  }

  resolve(schema) {
    for (let hops = 0; schema.$ref !== undefined; ++hops) {
      if (!schema.$ref.startsWith("#/") || hops > 20) throw new Error(`cannot follow ${schema.$ref}`);
      let target = this.#document;
      for (const part of schema.$ref.slice(2).split("/")) target = target?.[part.replaceAll("~1", "/").replaceAll("~0", "~")];
      if (target === undefined) throw new Error(`${schema.$ref} is not in the document`);
      const { $ref, ...beside } = schema;
      schema = { ...target, ...beside };
    }
    return schema;
  }

  of(schema, depth = 0) {
    if (schema === true) return anything;
    if (schema === false) throw new Error("nothing satisfies false");
    schema = this.resolve(schema);
    const own = this.#ofResolved(schema, depth);
    const examples = [...(schema.examples ?? []), ...(schema.example !== undefined ? [schema.example] : [])];
    return examples.length > 0 ? fc.oneof({ weight: 3, arbitrary: own }, { weight: 1, arbitrary: fc.constantFrom(...examples) }) : own;
  }

  #ofResolved(schema, depth) {
    if ("const" in schema) return fc.constant(schema.const);
    if (schema.enum) return fc.constantFrom(...schema.enum);
    if (schema.allOf) return this.of(this.#merged(schema), depth);
    const choices = schema.oneOf ?? schema.anyOf;
    if (choices) {
      const { oneOf, anyOf, ...beside } = schema;
      // Deep down the first one has to do: documents begin with the plainest.
      const usable = depth >= depthMax ? choices.slice(0, 1) : choices;
      return fc.oneof(...usable.map((choice) => this.of(merge(beside, this.resolve(choice)), depth + 1)));
    }
    const types = [schema.type ?? impliedType(schema)].flat();
    return fc.oneof(...types.map((type) => this.#ofType(type, schema, depth)));
  }

  #merged({ allOf, ...beside }) {
    return allOf.map((part) => this.resolve(part)).reduce((all, part) => merge(all, part.allOf ? this.#merged(part) : part), beside);
  }

  #ofType(type, schema, depth) {
    switch (type) {
      case "null":
        return fc.constant(null);
      case "boolean":
        return fc.boolean();
      case "integer":
        return integer(schema);
      case "number":
        return holdsInteger(schema) ? fc.oneof(integer(schema), number(schema)) : number(schema);
      case "string":
        return text(schema);
      case "array":
        return this.#array(schema, depth);
      case "object":
        return this.#object(schema, depth);
      default:
        return anything;
    }
  }

  #array(schema, depth) {
    const minLength = schema.minItems ?? 0;
    const maxLength = depth >= depthMax ? minLength : Math.min(schema.maxItems ?? Infinity, Math.max(listMax, minLength));
    const items = schema.items === undefined ? anything : fc.memo(() => this.of(schema.items, depth + 1))();
    return fc.array(items, { minLength, maxLength });
  }

  #object(schema, depth) {
    const required = schema.required ?? [];
    const members = {};
    for (const [name, member] of Object.entries(schema.properties ?? {})) {
      if (depth >= depthMax && !required.includes(name)) continue;
      members[name] = this.of(this.#overrides[name] ?? member, depth + 1);
    }
    for (const name of required) members[name] ??= anything;
    const known = fc.record(members, { requiredKeys: required.filter((name) => name in members) });
    if (schema.additionalProperties === false || depth >= depthMax) return known;
    const extra = typeof schema.additionalProperties === "object" ? this.of(schema.additionalProperties, depth + 1) : anything;
    const keys = schema.propertyNames ? text(this.resolve(schema.propertyNames)) : fc.string({ unit: "grapheme", maxLength: 12 });
    const others = fc.dictionary(keys, extra, { maxKeys: 2 }).map((object) => Object.fromEntries(Object.entries(object).filter(([key]) => !(key in (schema.properties ?? {})))));
    // Free members are rare where the known ones are what is interesting.
    const weight = Object.keys(members).length === 0 ? 9 : 1;
    return fc.oneof({ weight: 9, arbitrary: known }, { weight, arbitrary: fc.tuple(others, known).map(([more, object]) => ({ ...more, ...object })) });
  }
}

// Any JSON, small.
export const anything = fc.jsonValue({ maxDepth: 2, noUnicodeString: false });

function impliedType(schema) {
  if (schema.properties || schema.required) return "object";
  if (schema.items) return "array";
  return ["null", "boolean", "number", "string", "object"];
}

function merge(a, b) {
  const out = { ...a, ...b };
  if (a.properties && b.properties) out.properties = { ...a.properties, ...b.properties };
  if (a.required && b.required) out.required = [...new Set([...a.required, ...b.required])];
  if (a.allOf && b.allOf) out.allOf = [...a.allOf, ...b.allOf];
  return out;
}

function integerRange({ minimum = -(2 ** 31), maximum = 2 ** 31, exclusiveMinimum = -Infinity, exclusiveMaximum = Infinity }) {
  return { min: Math.max(Math.ceil(minimum), Math.floor(exclusiveMinimum) + 1, Number.MIN_SAFE_INTEGER),
    max: Math.min(Math.floor(maximum), Math.ceil(exclusiveMaximum) - 1, Number.MAX_SAFE_INTEGER) };
}

const holdsInteger = (schema) => integerRange(schema).min <= integerRange(schema).max;

// Bounds themselves come often: that is where mistakes are.
function integer(schema) {
  const { min, max } = integerRange(schema);
  return fc.oneof(fc.integer({ min, max }), fc.constantFrom(...[min, max, 0, 1].filter((value) => value >= min && value <= max)));
}

function number(schema) {
  const min = schema.exclusiveMinimum ?? schema.minimum ?? -1e6;
  const max = schema.exclusiveMaximum ?? schema.maximum ?? 1e6;
  return fc.double({ min, max, minExcluded: schema.exclusiveMinimum !== undefined, maxExcluded: schema.exclusiveMaximum !== undefined, noNaN: true });
}

function text({ minLength = 0, maxLength = Infinity, pattern }) {
  if (pattern !== undefined) return fc.stringMatching(new RegExp(pattern, "u"), { size: "small" });
  const bounds = { minLength, maxLength: Math.min(maxLength, Math.max(stringMax, minLength)) };
  // ajv counts code points; a grapheme has one or more, hence the second filter of whoever validates.
  return fc.oneof(fc.string(bounds), fc.string({ ...bounds, unit: "grapheme" }), fc.string({ ...bounds, unit: "binary" }));
}
