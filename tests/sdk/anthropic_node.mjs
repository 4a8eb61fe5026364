// Conformance of a Waybill node with the official Anthropic client for TypeScript.

import assert from "node:assert/strict";
import {
  CITIES, CITY, HELLO, KEY, LONG_SYSTEM, MODEL, PNG, SCHEMA, STRANGER, URL_ROOT, WEATHER, library, run,
} from "./conformance.mjs";

const { default: Anthropic } = await library("@anthropic-ai/sdk");

const client = (apiKey = KEY) => new Anthropic({ baseURL: URL_ROOT, apiKey, maxRetries: 0, timeout: 60_000 });
const body = (prompt, options = {}) => ({
  model: MODEL,
  max_tokens: 2000,
  messages: [{ role: "user", content: prompt }],
  ...options,
});
const create = (prompt, options) => client().messages.create(body(prompt, options));
const TOOL = { name: "weather", description: "The weather of a city, now.", input_schema: CITY };

async function read(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

function checkCalls(message) {
  const calls = message.content.filter((block) => block.type === "tool_use");
  assert.deepEqual(calls.map((call) => call.input), CITIES);
  assert.equal(message.stop_reason, "tool_use");
}

await run({
  async message() {
    const answer = await create(HELLO);
    assert.deepEqual([answer.type, answer.role, answer.model], ["message", "assistant", MODEL]);
    assert.match(answer.content[0].text, /hello/);
    assert.equal(answer.stop_reason, "end_turn");
    assert(answer.usage.input_tokens > 0 && answer.usage.output_tokens > 0);
  },
  async request_id() {
    const { response, request_id } = await client().messages.create(body(HELLO)).withResponse();
    assert.equal(request_id, response.headers.get("request-id"));
  },
  async stream() {
    const kinds = (await read(await create(HELLO, { stream: true }))).map((event) => event.type);
    assert.equal(kinds[0], "message_start");
    assert.deepEqual(kinds.slice(-2), ["message_delta", "message_stop"]);
  },
  async stream_helper() {
    const final = await client().messages.stream(body(HELLO)).finalMessage();
    assert.match(final.content[0].text, /hello/);
    assert(final.usage.output_tokens > 0);
  },
  async thinking() {
    const answer = await create("Please think.", { thinking: { type: "enabled", budget_tokens: 1024 } });
    assert.deepEqual(answer.content.map((block) => block.type), ["thinking", "text"]);
  },
  async tools() {
    checkCalls(await create(WEATHER, { tools: [TOOL] }));
  },
  async tools_stream() {
    checkCalls(await client().messages.stream(body(WEATHER, { tools: [TOOL] })).finalMessage());
  },
  async tool_results() {
    const first = await create(WEATHER, { tools: [TOOL] });
    const calls = first.content.filter((block) => block.type === "tool_use");
    const results = calls.map(({ id }) => ({ type: "tool_result", tool_use_id: id, content: "4 degrees" }));
    const messages = [
      { role: "user", content: WEATHER },
      { role: "assistant", content: first.content },
      { role: "user", content: results },
    ];
    assert.equal((await create(null, { tools: [TOOL], messages })).stop_reason, "end_turn");
  },
  async structured_output() {
    const answer = await create("Greet me as JSON.", {
      output_config: { format: { type: "json_schema", schema: SCHEMA } },
    });
    assert.deepEqual(JSON.parse(answer.content[0].text), { text: "hello", count: 1 });
  },
  async image() {
    const source = { type: "base64", media_type: "image/png", data: PNG };
    assert((await create([{ type: "image", source }, { type: "text", text: "What is this?" }])).content[0].text);
  },
  async long_system() {
    const system = [{ type: "text", text: LONG_SYSTEM, cache_control: { type: "ephemeral" } }];
    assert((await create(HELLO, { system })).content[0].text);
  },
  async count_tokens() {
    const counted = await client().messages.countTokens({ model: MODEL, messages: body(HELLO).messages });
    assert(counted.input_tokens > 0);
  },
  async models() {
    const ids = [];
    for await (const model of client().models.list()) ids.push(model.id);
    assert(ids.includes(MODEL), ids.join());
  },
  async not_found() {
    await assert.rejects(create(HELLO, { model: "no-such-model" }), Anthropic.NotFoundError);
  },
  async unauthorized() {
    await assert.rejects(client(STRANGER).messages.create(body(HELLO)), Anthropic.AuthenticationError);
  },
  async bad_request() {
    await assert.rejects(create(null, { messages: [] }), Anthropic.BadRequestError);
  },
  async overloaded() {
    await assert.rejects(create("overload"), (error) => [429, 503, 529].includes(error.status));
  },
  async cut_stream() {
    for (const prompt of ["cut", "break"]) {
      await assert.rejects(create(prompt, { stream: true }).then(read), Anthropic.APIError);
    }
  },
  async cut_stream_helper() {
    await assert.rejects(client().messages.stream(body("cut")).finalMessage());
  },
});
