// The property of property.mjs for a short time, from a fixed seed: how far it gets is a matter of the machine, what it asks is not.
import assert from "node:assert/strict";
import { test } from "node:test";
import { run } from "./property.mjs";

const url = process.env.STRATA_URL;

test("no request gets a 5xx or an answer that the document does not describe", { timeout: 110_000 }, async (t) => {
  const { counts, operations } = await run({ url, seconds: 40, seed: 20261130, log: (line) => t.diagnostic(line) });
  t.diagnostic(JSON.stringify(counts));
  assert.ok(operations.length >= 15, "the document lost its operations");
  // Both happen a lot, or the generator has come to make nothing that is understood, or nothing that is not.
  assert.ok(counts.accepted > counts.sent / 20 && counts.refused > counts.sent / 20, JSON.stringify(counts));
  assert.ok(counts.leftEarly < counts.sent / 20, JSON.stringify(counts));
});
