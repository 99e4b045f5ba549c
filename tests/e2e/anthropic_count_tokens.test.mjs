// Anthropic's client: counting. What is counted is what a run reads, and it takes no sequence (api-case 35).
import assert from "node:assert/strict";
import { test } from "node:test";
import { anthropic, assistant, defaults, messageTool, metric, user, violin } from "./support.mjs";

const text = (string) => ({ type: "text", text: string });
const requests = {
  "a question": { messages: violin },
  "a conversation": { messages: [user("Hello"), assistant("Hello!"), ...violin] },
  "a system string": { messages: violin, system: "Be kind." },
  "system blocks with cache_control": { messages: violin, system: [{ ...text("Be kind."), cache_control: { type: "ephemeral" } }, text("Be brief.")] },
  "tools": { messages: violin, tools: [messageTool("get_weather"), messageTool("get_time")] },
  "tools that are not offered": { messages: violin, tools: [messageTool("get_weather")], tool_choice: { type: "none" } },
  "a forced tool": { messages: violin, tools: [messageTool("get_weather")], tool_choice: { type: "tool", name: "get_weather" } },
  "thinking": { messages: violin, thinking: { type: "enabled", budget_tokens: 1024 } },
  "a thinking history": { messages: [...violin, assistant([{ type: "thinking", thinking: "Hm.", signature: "" }, text("A thing.")]), user("Yes?")] },
  "uses and results": { messages: [...violin, assistant([{ type: "tool_use", id: "t", name: "get_time", input: { city: "Oslo" } }]),
    user([{ type: "tool_result", tool_use_id: "t", content: "10:30" }])] },
};

for (const [name, request] of Object.entries(requests)) {
  test(`whole: case 35: ${name} is counted as it is read`, async () => {
    const { input_tokens } = await anthropic.messages.countTokens({ model: "m", ...request });
    const { usage } = await anthropic.messages.create({ ...defaults, max_tokens: 1, ...request });
    assert.equal(input_tokens, usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens);
  });
  test(`stream: case 35: ${name} is what message_start says`, async () => {
    const { input_tokens } = await anthropic.messages.countTokens({ model: "m", ...request });
    for await (const event of await anthropic.messages.create({ ...defaults, max_tokens: 1, stream: true, ...request })) {
      if (event.type === "message_start") assert.equal(event.message.usage.input_tokens, input_tokens);
    }
  });
}

test("whole: case 35: the beta path counts the same", async () => {
  const { input_tokens } = await anthropic.beta.messages.countTokens({ model: "m", messages: violin });
  assert.equal(input_tokens, (await anthropic.messages.countTokens({ model: "m", messages: violin })).input_tokens);
});

test("whole: case 35: it answers while all sequences are busy", async () => {
  const controllers = [];
  const streams = await Promise.all(Array.from({ length: 6 }, async () => {
    const controller = new AbortController();
    controllers.push(controller);
    return anthropic.messages.create({ ...defaults, messages: [user(`Tell me a story ${Math.random()}.`)], temperature: 1, max_tokens: 3000,
      stop_sequences: [], stream: true }, { signal: controller.signal });
  }));
  assert.equal(await metric("strata_requests_running"), 4);
  assert.ok((await metric("strata_requests_waiting")) > 0);
  assert.ok((await anthropic.messages.countTokens({ model: "m", messages: violin })).input_tokens > 0);
  for (const controller of controllers) controller.abort();
  for (const stream of streams) await stream[Symbol.asyncIterator]().next().catch(() => {});
});
