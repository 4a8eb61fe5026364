// Conformance of a Waybill node with the official Anthropic client for TypeScript.

import assert from "node:assert/strict";
import {
  BROKEN, CACHED, CACHE_WRITE, CITIES, CITY, ENDING_MAX, ENGINE, GREET, GREETING, HELLO, INSTRUCTED, KEY, LONG_SYSTEM, MODEL,
  ODD, OUTPUT, PASSING, PNG, REFUSALS_ON_MESSAGES, RETRY_AFTER, SAID_MAX, SCHEMA, SEE, SEEN, STRANGER, STUBBORN, TOTAL_INPUT, URL_ROOT,
  WEATHER, checkInstructed, checkTold, degrees, each, library, raises, run, servedAfterWait, speaks,
} from "./conformance.mjs";

const { default: Anthropic } = await library("@anthropic-ai/sdk");

const client = (apiKey = KEY, maxRetries = 0) => new Anthropic({ baseURL: URL_ROOT, apiKey, maxRetries, timeout: 120_000 });
const body = (prompt, options = {}) => ({
  model: MODEL,
  max_tokens: ENGINE ? SAID_MAX : 2000,
  messages: [{ role: "user", content: prompt }],
  ...options,
});
const create = (prompt, options) => client().messages.create(body(prompt, options));
const hello = () => create(HELLO);
const final = (prompt, options) => client().messages.stream(body(prompt, options)).finalMessage();
const TOOL = { name: "weather", description: "The weather of a city, now.", input_schema: CITY };
// What a small model has to be told besides.
const CALL = ENGINE ? { tool_choice: { type: "any" }, max_tokens: ENDING_MAX } : {};
const NO_CALL = ENGINE ? { tool_choice: { type: "none" } } : {};
const DOCUMENT = ENGINE ? { max_tokens: ENDING_MAX } : {};

function checkUsage(usage) {
  assert(usage.input_tokens + (usage.cache_read_input_tokens ?? 0) > 0 && usage.output_tokens > 0, JSON.stringify(usage));
  if (ENGINE) return;
  assert.equal(usage.input_tokens, TOTAL_INPUT - CACHED - CACHE_WRITE);
  assert.equal(usage.cache_read_input_tokens ?? 0, CACHED);
  assert.equal(usage.cache_creation_input_tokens ?? 0, CACHE_WRITE);
  assert.equal(usage.output_tokens, OUTPUT);
}

async function read(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

/** The text of a stream, event by event. */
const textOf = (events) => events.map((event) => event.delta?.text ?? "").join("");

function checkCalls(message) {
  const calls = message.content.filter((block) => block.type === "tool_use");
  assert.deepEqual(calls.map((call) => call.input), CITIES);
  assert.equal(message.stop_reason, "tool_use");
}

function checkEnd(message) {
  assert((ENGINE ? ["end_turn", "max_tokens"] : ["end_turn"]).includes(message.stop_reason), message.stop_reason);
}

const cases = {
  async message() {
    const answer = await create(HELLO);
    assert.deepEqual([answer.type, answer.role, answer.model], ["message", "assistant", MODEL]);
    assert(speaks(answer.content[0].text), JSON.stringify(answer));
    checkEnd(answer);
    checkUsage(answer.usage);
  },
  async request_id() {
    const { response, request_id } = await client().messages.create(body(HELLO)).withResponse();
    assert.equal(request_id, response.headers.get("request-id"));
  },
  async stream() {
    const events = await read(await create(HELLO, { stream: true }));
    const kinds = events.map((event) => event.type);
    assert.equal(kinds[0], "message_start");
    assert.deepEqual(kinds.slice(-2), ["message_delta", "message_stop"]);
    assert(speaks(textOf(events)), textOf(events));
  },
  async stream_helper() {
    const answer = await final(HELLO);
    assert(speaks(answer.content[0].text), JSON.stringify(answer));
    checkEnd(answer);
    checkUsage(answer.usage);
  },
  async tools() {
    checkCalls(await create(WEATHER, { tools: [TOOL], ...CALL }));
  },
  async tools_stream() {
    checkCalls(await final(WEATHER, { tools: [TOOL], ...CALL }));
  },
  async tool_results() {
    const first = await create(WEATHER, { tools: [TOOL], ...CALL });
    const calls = first.content.filter((block) => block.type === "tool_use");
    const results = calls.map(({ id, input }) => ({ type: "tool_result", tool_use_id: id, content: degrees(input.city) }));
    const messages = [
      { role: "user", content: WEATHER },
      { role: "assistant", content: first.content },
      { role: "user", content: results },
    ];
    const answer = await create(null, { tools: [TOOL], messages, ...NO_CALL });
    checkTold(answer.content.at(-1).text);
    checkEnd(answer);
  },
  async structured_output() {
    const answer = await create(GREET, {
      output_config: { format: { type: "json_schema", schema: SCHEMA } },
      ...DOCUMENT,
    });
    assert.deepEqual(JSON.parse(answer.content[0].text), GREETING);
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
  async bad_request_stream() {
    await assert.rejects(create(null, { messages: [], stream: true }), Anthropic.BadRequestError);
  },
};

/** Prompts that the upstream of the harness answers by a script; no real model does. */
const scripted = {
  async thinking() {
    const answer = await create("Please think.", { thinking: { type: "enabled", budget_tokens: 1024 } });
    assert.deepEqual(answer.content.map((block) => block.type), ["thinking", "text"]);
  },
  async image() {
    const source = { type: "base64", media_type: "image/png", data: PNG };
    const parts = [{ type: "image", source }, { type: "text", text: SEE }];
    for (const answer of [await create(parts), await final(parts)]) assert.equal(answer.content[0].text, SEEN);
  },
  async long_system() {
    const system = [{ type: "text", text: LONG_SYSTEM, cache_control: { type: "ephemeral" } }];
    for (const answer of [await create(INSTRUCTED, { system }), await final(INSTRUCTED, { system })]) {
      checkInstructed(answer.content[0].text, LONG_SYSTEM);
    }
  },
  async structured_output_helper() {
    const output_config = { format: { type: "json_schema", schema: SCHEMA } };
    const whole = await client().messages.parse(body(GREET, { output_config }));
    for (const answer of [whole, await final(GREET, { output_config })]) {
      assert.deepEqual(JSON.parse(answer.content[0].text), GREETING);
    }
  },
  async odd_streams() {
    for (const writing of ODD) {
      const answer = await final(`odd ${writing}`);
      assert.match(answer.content.at(-1).text, /^hello from/, writing);
      assert.equal(answer.stop_reason, "end_turn", writing);
      checkUsage(answer.usage);
      const events = await read(await create(`odd ${writing}`, { stream: true }));
      assert.match(textOf(events), /^hello from/, writing);
      assert.equal(events.at(-1).type, "message_stop", writing);
    }
  },
  async refusals() {
    for (const stream of [false, true]) {
      const act = async (prompt) => {
        const error = await raises(() => create(prompt, { stream }));
        const due = REFUSALS_ON_MESSAGES[prompt];
        assert.equal(error.status, due, String(error));
        if (due >= 503) assert.equal(error.error.error.type, "overloaded_error");
        assert.equal(error.error.type, "error");
        if (due === 429) assert.equal(error.headers.get("retry-after"), RETRY_AFTER);
      };
      await each(Object.keys(REFUSALS_ON_MESSAGES), act, hello);
    }
  },
  async errors_in_a_good_status() {
    for (const stream of [false, true]) {
      const act = async (prompt) => assert((await raises(() => create(prompt, { stream }))).status >= 500);
      await each(["stumble"], act, hello);
    }
  },
  async broken_answers() {
    const act = async (prompt) => assert.equal((await raises(() => create(prompt))).status, 502);
    await each(["cut text", "end text"], act, hello);
  },
  async broken_streams() {
    const act = async (prompt) => {
      const error = await raises(async () => read(await create(prompt, { tools: [TOOL], stream: true })));
      assert(error instanceof Anthropic.APIError, String(error));
    };
    await each(BROKEN, act, hello);
  },
  async broken_streams_helper() {
    await each(BROKEN, (prompt) => raises(() => final(prompt, { tools: [TOOL] })), hello);
  },
  /** Every leg was tried: the node says so, and the client believes it. */
  async not_tried_again() {
    const act = async (prompt) => {
      const error = await raises(() => client(KEY, 2).messages.create(body(prompt)));
      assert.equal(error.status, REFUSALS_ON_MESSAGES[prompt.replace(" stubborn", "")], String(error));
    };
    await each(STUBBORN, act, hello);
  },
  async tried_again_when_told() {
    for (const prompt of PASSING) {
      const answer = await client(KEY, 2).messages.create(body(prompt));
      assert.match(answer.content[0].text, /^hello from/, prompt);
    }
  },
  async tried_again() {
    const answer = await servedAfterWait(() => create("refuse 500"), () => client(KEY, 2).messages.create(body(HELLO)));
    assert.match(answer.content[0].text, /hello/);
  },
};

await run(ENGINE ? cases : { ...cases, ...scripted });
