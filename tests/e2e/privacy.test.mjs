// What a request may not reach, and what nobody else may see of it (rules I3, I4, I7). STRATA_LOG is the log of the cluster.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { once } from "node:events";
import { createServer } from "node:net";
import { test } from "node:test";
import { anthropic, assistant, bothChat, defaults, openai, url, user, violin } from "./support.mjs";

const addressed = (address) => user([{ type: "text", text: "See" }, { type: "image_url", image_url: { url: address } }]);

test("rule I3: no address in a request is called", async () => {
  let calls = 0;
  const server = createServer((socket) => (++calls, socket.destroy())).listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = `http://127.0.0.1:${server.address().port}/image.png`;
  const create = (messages) => openai.chat.completions.create({ ...defaults, max_tokens: 1, messages }).catch((error) => error);
  await create([addressed(address)]);
  await create([addressed(address), assistant("Nice."), ...violin]);
  await anthropic.messages.create({ ...defaults, max_tokens: 1, messages: [user([{ type: "image", source: { type: "url", url: address } }]), assistant("Nice."), ...violin] });
  await create([{ role: "tool", tool_call_id: "c", content: [{ type: "image_url", image_url: { url: address } }] }, ...violin]);
  assert.equal(calls, 0);
  // The server would have heard of it: the counter counts.
  await fetch(address).catch(() => {});
  assert.equal(calls, 1);
  server.close();
});

for (const path of ["/etc/passwd", "file:///etc/passwd", "../../../etc/passwd"]) {
  bothChat(`rule I4: ${path} is not read`, async (ask) => {
    const size = async (address) => (await ask([addressed(address), assistant("Nice."), ...violin], { max_tokens: 1 })).usage.prompt_tokens;
    assert.equal(await size(path), await size("data:image/png;base64,AAAA"), "a note of the same size as any other image");
  });
}

test("rule I7: neither log nor metrics hold what was asked or answered", async () => {
  const secret = "Zanzibarquagga";
  const messages = [user(`My name is ${secret}. What is my name?`)];
  await openai.chat.completions.create({ ...defaults, messages });
  await anthropic.messages.create({ ...defaults, messages, system: `Call me ${secret}.` });
  await openai.completions.create({ model: "m", prompt: secret, max_tokens: 2 });
  await openai.chat.completions.create({ ...defaults, messages: [...messages, { role: secret, content: "x" }] }).catch(() => {});
  const id = (await openai.models.retrieve("strata-demo"))._request_id;
  const log = await readFile(process.env.STRATA_LOG, "utf8");
  assert.ok(log.includes(id), "this is the log of the cluster");
  assert.ok(!log.includes(secret));
  assert.ok(!(await (await fetch(`${url}/metrics`)).text()).includes(secret));
});
