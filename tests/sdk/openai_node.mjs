// Conformance of a Waybill node with the official OpenAI client for Node.
//
// Reads WAYBILL_URL (http://HOST:PORT), WAYBILL_KEY and WAYBILL_MODEL (a chat model with tools and
// structured output). Prints `ok NAME` per case, or `skip NAME: why`; exits 1 after the last case if
// one failed. With --engine the model is a real one: tool calls are then asked for with `tool_choice`,
// since a small model left alone writes what its engine refuses, and a JSON document may be cut short.
// The library is looked up in target/sdk/node (scripts/setup.sh sdk), or in WAYBILL_SDK_NODE.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const home = process.env.WAYBILL_SDK_NODE ?? fileURLToPath(new URL("../../target/sdk/node", import.meta.url));
const { OpenAI } = createRequire(join(home, "package.json"))("openai");

const { WAYBILL_URL, WAYBILL_KEY, WAYBILL_MODEL } = process.env;
assert(WAYBILL_URL && WAYBILL_KEY && WAYBILL_MODEL, "set WAYBILL_URL, WAYBILL_KEY and WAYBILL_MODEL");
const ENGINE = process.argv.includes("--engine");
const OUTPUT_TOKENS_MAX = 48;
const REQUEST_ID = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
const CALL = ENGINE ? { tool_choice: "required" } : {};
const NO_CALL = ENGINE ? { tool_choice: "none" } : {};
const MESSAGES = [{ role: "user", content: "Say hello to the waybill in one short sentence." }];
const WEATHER = [{ role: "user", content: "What is the weather in Oslo?" }];
const TOOL = {
  type: "function",
  function: {
    name: "weather",
    description: "The weather of a city, now.",
    parameters: {
      type: "object",
      properties: { city: { type: "string" } },
      required: ["city"],
      additionalProperties: false,
    },
  },
};
const SCHEMA = {
  type: "json_schema",
  json_schema: {
    name: "greeting",
    strict: true,
    schema: {
      type: "object",
      properties: { text: { type: "string" }, count: { type: "integer" } },
      required: ["text", "count"],
      additionalProperties: false,
    },
  },
};

/** Thrown by a case that the node under test has nothing to run on. */
class Skip extends Error {}

const client = (apiKey = WAYBILL_KEY) =>
  new OpenAI({ baseURL: `${WAYBILL_URL.replace(/\/$/, "")}/v1`, apiKey, maxRetries: 0, timeout: 120_000 });

const body = (options = {}) => ({
  model: WAYBILL_MODEL,
  messages: MESSAGES,
  max_tokens: OUTPUT_TOKENS_MAX,
  temperature: 0,
  ...options,
});

const create = (options) => client().chat.completions.create(body(options));

function checkUsage(usage) {
  assert(usage.prompt_tokens > 0, JSON.stringify(usage));
  assert(usage.completion_tokens > 0, JSON.stringify(usage));
  assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
}

function checkCalls(calls) {
  for (const call of calls) {
    assert.equal(call.name, "weather");
    JSON.parse(call.arguments);
  }
}

/** All chunks of a stream, its text and its finish reasons; the client throws when it is illegal. */
async function read(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  const choices = chunks.flatMap((chunk) => chunk.choices);
  return {
    chunks,
    text: choices.map((choice) => choice.delta.content ?? "").join(""),
    finishes: choices.map((choice) => choice.finish_reason).filter(Boolean),
    toolCalls: choices.flatMap((choice) => choice.delta.tool_calls ?? []),
  };
}

/** The error that `act` must end with, checked down to its request id. */
async function expectError(kind, status, act) {
  const error = await act().then(
    () => assert.fail(`no error, ${status} was due`),
    (error) => error,
  );
  assert.equal(error.constructor, kind, String(error));
  assert.equal(error.status, status);
  assert(error.error.message && error.error.type && error.error.code, JSON.stringify(error.error));
  assert.equal(error.requestID, error.error.request_id);
  assert.match(error.requestID, REQUEST_ID);
  return error.error;
}

const cases = {
  async chat() {
    const answer = await create();
    assert.equal(answer.object, "chat.completion");
    assert(answer.id && answer.created > 0);
    assert.equal(answer.model, WAYBILL_MODEL);
    assert.equal(answer.choices.length, 1);
    assert.equal(answer.choices[0].message.role, "assistant");
    assert(answer.choices[0].message.content);
    assert(["stop", "length"].includes(answer.choices[0].finish_reason));
    checkUsage(answer.usage);
  },

  async chat_headers() {
    const { response } = await create().withResponse();
    const id = response.headers.get("x-request-id");
    assert.match(id, REQUEST_ID);
    assert.equal(response.headers.get("request-id"), id);
    assert(response.headers.get("content-type").startsWith("application/json"));
  },

  async chat_stream() {
    const { chunks, text, finishes } = await read(await create({ stream: true }));
    assert(text);
    assert.equal(finishes.length, 1);
    assert(["stop", "length"].includes(finishes[0]));
    assert.deepEqual([...new Set(chunks.map((chunk) => chunk.model))], [WAYBILL_MODEL]);
    assert.equal(new Set(chunks.map((chunk) => chunk.id)).size, 1);
    assert(chunks.every((chunk) => chunk.object === "chat.completion.chunk"));
    assert(chunks.every((chunk) => chunk.choices.length > 0), "a usage chunk came that nobody asked for");
  },

  async chat_stream_usage() {
    const { chunks, text } = await read(await create({ stream: true, stream_options: { include_usage: true } }));
    assert(text);
    const last = chunks.pop();
    assert.deepEqual(last.choices, []);
    checkUsage(last.usage);
    assert(chunks.every((chunk) => chunk.choices.length > 0));
  },

  async chat_stream_helper() {
    const runner = client().chat.completions.stream(body());
    const final = await runner.finalChatCompletion();
    assert(final.choices[0].message.content);
    assert.equal(final.model, WAYBILL_MODEL);
  },

  async chat_stream_closed_early() {
    const stream = await create({ stream: true });
    for await (const chunk of stream) {
      assert.equal(chunk.object, "chat.completion.chunk");
      break;
    }
  },

  async tools() {
    const [choice] = (await create({ tools: [TOOL], messages: WEATHER, ...CALL })).choices;
    const calls = choice.message.tool_calls ?? [];
    assert(calls.length > 0 || choice.message.content);
    if (choice.finish_reason !== "length") checkCalls(calls.map((call) => call.function));
  },

  async tools_stream() {
    const { text, finishes, toolCalls } = await read(
      await create({ tools: [TOOL], messages: WEATHER, stream: true, ...CALL }),
    );
    assert.equal(finishes.length, 1);
    const calls = [];
    for (const { index, function: part } of toolCalls) {
      calls[index] ??= { name: "", arguments: "" };
      calls[index].name += part.name ?? "";
      calls[index].arguments += part.arguments ?? "";
    }
    assert(calls.length > 0 || text, "the stream held nothing");
    if (finishes[0] !== "length") checkCalls(calls);
  },

  async tool_result() {
    const call = { id: "call_1", type: "function", function: { name: "weather", arguments: '{"city":"Oslo"}' } };
    const messages = [
      ...WEATHER,
      { role: "assistant", content: null, tool_calls: [call] },
      { role: "tool", tool_call_id: "call_1", content: "4 degrees, rain" },
    ];
    const { message } = (await create({ tools: [TOOL], messages, ...NO_CALL })).choices[0];
    assert(message.content || message.tool_calls);
  },

  async response_format() {
    const messages = [{ role: "user", content: "Greet me as JSON." }];
    const [choice] = (await create({ response_format: SCHEMA, messages })).choices;
    assert(choice.message.content);
    if (ENGINE && choice.finish_reason === "stop") {
      const document = JSON.parse(choice.message.content);
      assert.equal(typeof document.text, "string");
      assert(Number.isInteger(document.count));
    }
  },

  async models() {
    const listed = (await client().models.list()).data;
    const ids = listed.map((model) => model.id);
    assert(ids.includes(WAYBILL_MODEL), ids.join());
    assert.equal(new Set(ids).size, ids.length);
    assert(listed.every((model) => model.object === "model"));
  },

  async model() {
    const found = await client().models.retrieve(WAYBILL_MODEL);
    assert.deepEqual([found.id, found.object], [WAYBILL_MODEL, "model"]);
  },

  async model_with_slash() {
    const listed = (await client().models.list()).data;
    const slashed = listed.find((model) => model.id.includes("/"))?.id;
    if (slashed === undefined) throw new Skip("no model of this node has a slash in its id");
    assert.equal((await client().models.retrieve(slashed)).id, slashed);
  },

  async not_found() {
    const error = await expectError(OpenAI.NotFoundError, 404, () => create({ model: "no-such-model" }));
    assert.equal(error.code, "model_not_found");
    assert(!JSON.stringify(error).includes("no-such-model"));
  },

  async model_not_found() {
    await expectError(OpenAI.NotFoundError, 404, () => client().models.retrieve("no/such-model"));
  },

  async unauthorized() {
    const stranger = client("sk-tenant-0000000000000000000000");
    const act = () => stranger.chat.completions.create(body());
    const error = await expectError(OpenAI.AuthenticationError, 401, act);
    assert.equal(error.code, "invalid_api_key");
  },

  async bad_request() {
    await expectError(OpenAI.BadRequestError, 400, () => create({ messages: [] }));
  },

  async bad_request_stream() {
    await expectError(OpenAI.BadRequestError, 400, () => create({ messages: [], stream: true }));
  },
};

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
const BOTH = [{ role: "user", content: "What is the weather in Oslo and in Bergen?" }];
const CITIES = [{ city: "Oslo" }, { city: "Bergen" }];
const FLAT_TOOL = { type: "function", ...TOOL.function, strict: true };
const parsed = (calls) => calls.map((call) => JSON.parse((call.function ?? call).arguments));
const respond = (input, options = {}) =>
  client().responses.create({ model: WAYBILL_MODEL, input, store: false, ...options });

/** Prompts that the upstream of the harness answers by a script; no real model does. */
const scripted = {
  async parallel_tools() {
    const { message } = (await create({ tools: [TOOL], messages: BOTH })).choices[0];
    assert.deepEqual(parsed(message.tool_calls), CITIES);
    const results = message.tool_calls.map(({ id }) => ({ role: "tool", tool_call_id: id, content: "4 degrees" }));
    const again = await create({ tools: [TOOL], messages: [...BOTH, message, ...results] });
    assert(again.choices[0].message.content);
  },

  async parallel_tools_stream_helper() {
    const final = await client().chat.completions.stream(body({ tools: [TOOL], messages: BOTH })).finalChatCompletion();
    assert.deepEqual(parsed(final.choices[0].message.tool_calls), CITIES);
  },

  async image() {
    const image = { type: "image_url", image_url: { url: `data:image/png;base64,${PNG}` } };
    const messages = [{ role: "user", content: [{ type: "text", text: "What is this?" }, image] }];
    assert((await create({ messages })).choices[0].message.content);
  },

  async long_system() {
    const system = { role: "system", content: "You answer for a freight office. ".repeat(1500) };
    assert((await create({ messages: [system, ...MESSAGES] })).choices[0].message.content);
  },

  async cut_stream() {
    for (const content of ["cut", "break"]) {
      const cut = create({ messages: [{ role: "user", content }], stream: true }).then(read);
      await assert.rejects(cut, OpenAI.APIError);
    }
  },

  async cut_stream_helper() {
    const messages = [{ role: "user", content: "cut" }];
    await assert.rejects(client().chat.completions.stream(body({ messages })).finalChatCompletion());
  },

  async overloaded() {
    const act = create({ messages: [{ role: "user", content: "overload" }] });
    await assert.rejects(act, (error) => [429, 503].includes(error.status));
  },

  async responses() {
    const answer = await respond("Say hello.", { instructions: "Be brief." });
    assert.equal(answer.status, "completed");
    assert.match(answer.output_text, /hello/);
  },

  async responses_tools() {
    const answer = await respond(BOTH, { tools: [FLAT_TOOL] });
    const calls = answer.output.filter((item) => item.type === "function_call");
    assert.deepEqual(parsed(calls), CITIES);
    const results = calls.map(({ call_id }) => ({ type: "function_call_output", call_id, output: "4 degrees" }));
    const again = await respond([...BOTH, ...answer.output, ...results], { tools: [FLAT_TOOL] });
    assert.match(again.output_text, /hello/);
  },

  async responses_stream_helper() {
    const stream = client().responses.stream({ model: WAYBILL_MODEL, input: BOTH, tools: [FLAT_TOOL], store: false });
    const final = await stream.finalResponse();
    assert.deepEqual(parsed(final.output.filter((item) => item.type === "function_call")), CITIES);
  },

  async responses_cut() {
    for (const prompt of ["cut", "break"]) {
      const kinds = [];
      try {
        for await (const event of await respond(prompt, { stream: true })) kinds.push(event.type);
      } catch (error) {
        assert(error instanceof OpenAI.APIError, String(error));
        continue;
      }
      assert.equal(kinds.at(-1), "response.failed");
    }
  },
};

for (const [name, run] of Object.entries(ENGINE ? cases : { ...cases, ...scripted })) {
  try {
    await run();
    console.log(`ok ${name}`);
  } catch (error) {
    if (error instanceof Skip) {
      console.log(`skip ${name}: ${error.message}`);
    } else {
      console.log(`not ok ${name}`);
      console.error(error);
      process.exitCode = 1;
    }
  }
}
