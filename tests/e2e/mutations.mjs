// What goes wrong with requests: a value of another type or out of range, a member missing or too many, odd characters, broken JSON.
// A mutation is plain data, so that a failure can be shown and shrunk; apply() makes the bytes to send.
import fc from "fast-check";

// JSON texts that replace a value; some of them no object of JavaScript could be printed as.
const literals = [
  "null", "true", "false", "0", "-0", "-1", "1", "1.5", "1e308", "1e999", "-1e999", "9223372036854775807", "9223372036854775808", "18446744073709551616",
  "1180591620717411303424", "1e-400", "01", "NaN", '""', '" "', '"auto"', '"none"', '"\\u0000"', '"\\ud800"', '"\\udc00\\ud800"', '"\\ufeff\\u202e\\uffff"',
  '"<|im_end|>"', '"👩‍👩‍👧‍👦"', "[]", "{}", "[null]", "[[]]", "[{}]", "{\"\":null}", '{"type":"text"}', '{"type":"function"}', '["a","b"]', "[0]", "[-1,1e9]",
];
const long = () => JSON.stringify("x\u0301".repeat(50_000));
const many = () => `[${Array(20_000).fill("1").join(",")}]`;
const deep = (depth) => "[".repeat(depth) + "]".repeat(depth);
const large = { long: long(), many: many(), deep100: deep(100), deep5000: deep(5000), unfinished: "[".repeat(5000) };

// What is longer is spoilt as text: it may be nested too deep to walk through.
const structuredMax = 10_000;

// Every place of a value, itself first: arrays of keys.
export function pathsOf(value, path = []) {
  if (value === null || typeof value !== "object") return [path];
  return [path, ...Object.keys(value).flatMap((key) => pathsOf(value[key], [...path, key]))];
}

// at: which of the places, counted round; without the generator's liking for small numbers, which are the first places. nat and text say
// the rest.
export const mutation = fc.record({
  kind: fc.constantFrom("replace", "replace", "replace", "large", "remove", "add", "twice", "cut", "byte", "wrap"),
  at: fc.noBias(fc.nat(999_983)),
  nat: fc.noBias(fc.nat(9999)),
  text: fc.string({ unit: "binary", maxLength: 12 }),
});

// body: a JSON value. Returns the bytes of a request's body. Bytes are changed last: what they leave is text no more.
export function apply(body, mutations) {
  const bytes = Buffer.from(mutations.filter(({ kind }) => kind !== "byte").reduce(change, print(body, new Map())));
  for (const { at, nat } of mutations.filter(({ kind }) => kind === "byte")) if (bytes.length > 0) bytes[at % bytes.length] = nat % 256;
  return bytes;
}

function change(text, { kind, at, nat, text: extra }) {
  const pick = (list) => list[nat % list.length];
  if (kind === "cut") return text.slice(0, at % (text.length + 1));
  if (kind === "wrap") return pick(["[", "\ufeff", " \n\t", '{"a":', '"', "/*"]) + text;
  const parsed = parse(text);
  if (parsed === undefined) return text.replaceAll(pick(['"', ":", ",", "{"]), "");
  const paths = pathsOf(parsed);
  const path = paths[at % paths.length];
  const replaced = (literal) => print(parsed, new Map([[path.join("\n"), literal]]));
  switch (kind) {
    case "replace":
      return replaced(pick(literals));
    case "large":
      return replaced(pick(Object.values(large)));
    case "remove":
      return path.length === 0 ? "" : print(without(parsed, path), new Map());
    default:  // "add", "twice"
      return text.replace("{", () => `{${JSON.stringify(kind === "add" ? extra : (Object.keys(parsed ?? {})[0] ?? ""))}:${pick(literals)},`);
  }
}

function parse(text) {
  if (text.length >= structuredMax) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function without(value, [key, ...rest]) {
  const copy = Array.isArray(value) ? [...value] : { ...value };
  if (rest.length > 0) copy[key] = without(value[key], rest);
  else if (Array.isArray(copy)) copy.splice(Number(key), 1);
  else delete copy[key];
  return copy;
}

// JSON text with some places given literally; keys of the map are paths joined by line ends.
function print(value, given, path = []) {
  const literal = given.get(path.join("\n"));
  if (literal !== undefined) return literal;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map((element, i) => print(element, given, [...path, String(i)])).join(",")}]`;
  return `{${Object.entries(value).map(([key, member]) => `${JSON.stringify(key)}:${print(member, given, [...path, key])}`).join(",")}}`;
}
