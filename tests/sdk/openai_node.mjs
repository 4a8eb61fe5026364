// Conformance of a Waybill node with the official OpenAI client for Node.

import assert from "node:assert/strict";
import {
  BROKEN, CACHED, CITIES, CITY, ENDING_MAX, ENGINE, GREET, GREETING, HELLO, INSTRUCTED, KEY, LONG_SYSTEM, MODEL, ODD, OUTPUT,
  PASSING, PNG, REFUSALS, REQUEST_ID, RETRY_AFTER, SAID_MAX, SCHEMA, SEE, SEEN, STRANGER, STUBBORN, Skip, TOTAL_INPUT, URL_ROOT,
  WEATHER,
  checkInstructed, checkTold, degrees, each, library, raises, run, servedAfterWait, speaks,
} from "./conformance.mjs";

const { OpenAI } = await library("openai");

const OUTPUT_TOKENS_MAX = ENGINE ? SAID_MAX : 48;
// What a small model has to be told besides.
const CALL = ENGINE ? { tool_choice: "required", max_tokens: ENDING_MAX } : {};
const NO_CALL = ENGINE ? { tool_choice: "none" } : {};
const DOCUMENT = ENGINE ? { max_tokens: ENDING_MAX } : {};
const SAID = ENGINE ? { max_output_tokens: SAID_MAX } : {};
const ENDING = ENGINE ? { max_output_tokens: ENDING_MAX } : {};
const RESPONSES_CALL = ENGINE ? { tool_choice: "required", ...ENDING } : {};
const FUNCTION = { name: "weather", description: "The weather of a city, now.", parameters: CITY };
const TOOL = { type: "function", function: FUNCTION };
const FLAT_TOOL = { type: "function", ...FUNCTION, strict: true };
const JSON_SCHEMA = { name: "greeting", strict: true, schema: SCHEMA };
const said = (content) => [{ role: "user", content }];

const client = (apiKey = KEY, maxRetries = 0) =>
  new OpenAI({ baseURL: `${URL_ROOT}/v1`, apiKey, maxRetries, timeout: 120_000 });

const body = (options = {}) => ({
  model: MODEL,
  messages: said(HELLO),
  max_tokens: OUTPUT_TOKENS_MAX,
  temperature: 0,
  ...options,
});

const create = (options) => client().chat.completions.create(body(options));
const ask = (prompt, options = {}) => create({ messages: said(prompt), ...options });
const helped = (options) => client().chat.completions.stream(body(options)).finalChatCompletion();

function checkUsage(usage) {
  assert(usage.prompt_tokens > 0 && usage.completion_tokens > 0, JSON.stringify(usage));
  assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
  if (ENGINE) return;
  assert.deepEqual([usage.prompt_tokens, usage.completion_tokens], [TOTAL_INPUT, OUTPUT]);
  assert.equal(usage.prompt_tokens_details.cached_tokens, CACHED);
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

const given = (call) => degrees(JSON.parse((call.function ?? call).arguments).city);
const parsed = (calls) => calls.map((call) => JSON.parse((call.function ?? call).arguments));
const respond = (input, options = {}) => client().responses.create({ model: MODEL, input, store: false, ...options });
const responseHelped = (input, options = {}) =>
  client().responses.stream({ model: MODEL, input, store: false, ...options }).finalResponse();
const responseCalls = (answer) => answer.output.filter((item) => item.type === "function_call");

async function events(prompt, options = {}) {
  const all = [];
  for await (const event of await respond(prompt, { stream: true, ...options })) all.push(event);
  return all;
}

function checkResponseUsage(usage) {
  assert(usage.input_tokens > 0 && usage.output_tokens > 0, JSON.stringify(usage));
  assert.equal(usage.total_tokens, usage.input_tokens + usage.output_tokens);
  if (ENGINE) return;
  assert.deepEqual([usage.input_tokens, usage.output_tokens], [TOTAL_INPUT, OUTPUT]);
  assert.equal(usage.input_tokens_details.cached_tokens, CACHED);
}

const cases = {
  async chat() {
    const answer = await create();
    assert.equal(answer.object, "chat.completion");
    assert(answer.id && answer.created > 0);
    assert.equal(answer.model, MODEL);
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
    assert.deepEqual([...new Set(chunks.map((chunk) => chunk.model))], [MODEL]);
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
    const final = await helped();
    assert(final.choices[0].message.content);
    assert.equal(final.model, MODEL);
  },

  async chat_stream_closed_early() {
    const stream = await create({ stream: true });
    for await (const chunk of stream) {
      assert.equal(chunk.object, "chat.completion.chunk");
      break;
    }
  },

  async tools() {
    const { message } = (await ask(WEATHER, { tools: [TOOL], ...CALL })).choices[0];
    assert.deepEqual(parsed(message.tool_calls), CITIES);
    const results = message.tool_calls.map((call) => ({ role: "tool", tool_call_id: call.id, content: given(call) }));
    const again = await create({ tools: [TOOL], messages: [...said(WEATHER), message, ...results], ...NO_CALL });
    checkTold(again.choices[0].message.content);
  },

  async tools_stream() {
    const { finishes, toolCalls } = await read(await ask(WEATHER, { tools: [TOOL], stream: true, ...CALL }));
    assert.deepEqual(finishes, ["tool_calls"]);
    const calls = [];
    for (const { index, function: part } of toolCalls) {
      calls[index] ??= { name: "", arguments: "" };
      calls[index].name += part.name ?? "";
      calls[index].arguments += part.arguments ?? "";
    }
    assert(calls.every((call) => call.name === "weather"), JSON.stringify(calls));
    assert.deepEqual(parsed(calls), CITIES);
  },

  async structured_output() {
    const format = { type: "json_schema", json_schema: JSON_SCHEMA };
    const answer = await ask(GREET, { response_format: format, ...DOCUMENT });
    assert.deepEqual(JSON.parse(answer.choices[0].message.content), GREETING);
  },

  async models() {
    const listed = (await client().models.list()).data;
    const ids = listed.map((model) => model.id);
    assert(ids.includes(MODEL), ids.join());
    assert.equal(new Set(ids).size, ids.length);
    assert(listed.every((model) => model.object === "model"));
  },

  async model() {
    const found = await client().models.retrieve(MODEL);
    assert.deepEqual([found.id, found.object], [MODEL, "model"]);
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
    const stranger = client(STRANGER);
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

  async responses() {
    const answer = await respond(HELLO, { instructions: "Be brief.", ...SAID });
    assert((ENGINE ? ["completed", "incomplete"] : ["completed"]).includes(answer.status), answer.status);
    assert(speaks(answer.output_text), JSON.stringify(answer));
    checkResponseUsage(answer.usage);
  },

  async responses_tools() {
    const answer = await respond(WEATHER, { tools: [FLAT_TOOL], ...RESPONSES_CALL });
    const calls = responseCalls(answer);
    assert.deepEqual(parsed(calls), CITIES);
    const results = calls.map((call) => ({ type: "function_call_output", call_id: call.call_id, output: given(call) }));
    const turns = [...said(WEATHER), ...answer.output, ...results];
    const again = await respond(turns, { tools: [FLAT_TOOL], ...NO_CALL, ...SAID });
    checkTold(again.output_text);
  },

  async responses_stream() {
    const told = await events(WEATHER, { tools: [FLAT_TOOL], ...RESPONSES_CALL });
    assert.deepEqual(told.map((event) => event.sequence_number), told.map((_, place) => place));
    assert.deepEqual([told[0].type, told.at(-1).type], ["response.created", "response.completed"]);
    assert.deepEqual(parsed(responseCalls(told.at(-1).response)), CITIES);
    checkResponseUsage(told.at(-1).response.usage);
  },

  async responses_format() {
    const answer = await respond(GREET, { text: { format: { type: "json_schema", ...JSON_SCHEMA } }, ...ENDING });
    assert.deepEqual(JSON.parse(answer.output_text), GREETING);
  },
};

/** Prompts that the upstream of the harness answers by a script; no real model does. */
const scripted = {
  async parallel_tools_stream_helper() {
    const [choice] = (await helped({ tools: [TOOL], messages: said(WEATHER) })).choices;
    assert.deepEqual(parsed(choice.message.tool_calls), CITIES);
    assert.equal(choice.finish_reason, "tool_calls");
  },

  async image() {
    const image = { type: "image_url", image_url: { url: `data:image/png;base64,${PNG}` } };
    const parts = [{ type: "text", text: SEE }, image];
    assert.equal((await ask(parts)).choices[0].message.content, SEEN);
    assert.equal((await helped({ messages: said(parts) })).choices[0].message.content, SEEN);
  },

  async long_system() {
    const messages = [{ role: "system", content: LONG_SYSTEM }, ...said(INSTRUCTED)];
    checkInstructed((await create({ messages })).choices[0].message.content, LONG_SYSTEM);
    checkInstructed((await helped({ messages })).choices[0].message.content, LONG_SYSTEM);
  },

  async structured_output_helper() {
    const settings = { messages: said(GREET), response_format: { type: "json_schema", json_schema: JSON_SCHEMA } };
    const whole = await client().chat.completions.parse(body(settings));
    for (const answer of [whole, await helped(settings)]) {
      assert.deepEqual(JSON.parse(answer.choices[0].message.content), GREETING);
    }
  },

  async odd_streams() {
    for (const writing of ODD) {
      const options = { messages: said(`odd ${writing}`), stream_options: { include_usage: true } };
      const { text, finishes, chunks } = await read(await create({ ...options, stream: true }));
      assert.match(text, /^hello from/, writing);
      assert.deepEqual(finishes, ["stop"], writing);
      checkUsage(chunks.at(-1).usage);
      const final = await helped(options);
      assert.match(final.choices[0].message.content, /^hello from/, writing);
      assert.equal(final.choices[0].finish_reason, "stop", writing);
      checkUsage(final.usage);
    }
  },

  async refusals() {
    for (const stream of [false, true]) {
      const act = async (prompt) => {
        const error = await raises(() => ask(prompt, { stream }));
        assert.equal(error.status, REFUSALS[prompt], String(error));
        if (prompt === "refuse 429") assert.equal(error.headers.get("retry-after"), RETRY_AFTER);
      };
      await each(Object.keys(REFUSALS), act, create);
    }
  },

  async errors_in_a_good_status() {
    for (const stream of [false, true]) {
      const act = async (prompt) => assert((await raises(() => ask(prompt, { stream }))).status >= 500);
      await each(["stumble"], act, create);
    }
  },

  async broken_answers() {
    const act = async (prompt) => assert.equal((await raises(() => ask(prompt))).status, 502);
    await each(["cut text", "end text"], act, create);
  },

  async broken_streams() {
    const act = async (prompt) => {
      const error = await raises(async () => read(await ask(prompt, { tools: [TOOL], stream: true })));
      assert(error instanceof OpenAI.APIError, String(error));
    };
    await each(BROKEN, act, create);
  },

  async broken_streams_helper() {
    const act = (prompt) => raises(() => helped({ messages: said(prompt), tools: [TOOL] }));
    await each(BROKEN, act, create);
  },

  async responses_stream_helper() {
    assert.deepEqual(parsed(responseCalls(await responseHelped(WEATHER, { tools: [FLAT_TOOL] }))), CITIES);
  },

  async responses_odd_streams() {
    for (const writing of ODD) {
      const prompt = `odd ${writing}`;
      const last = (await events(prompt)).at(-1);
      assert.equal(last.type, "response.completed", writing);
      for (const response of [last.response, await responseHelped(prompt)]) {
        assert.equal(response.status, "completed", writing);
        assert.match(response.output.at(-1).content[0].text, /^hello from/, writing);
        checkResponseUsage(response.usage);
      }
    }
  },

  async responses_image() {
    const image = { type: "input_image", image_url: `data:image/png;base64,${PNG}`, detail: "auto" };
    const turns = said([{ type: "input_text", text: SEE }, image]);
    assert.equal((await respond(turns)).output_text, SEEN);
    assert.equal((await responseHelped(turns)).output_text, SEEN);
  },

  async responses_long_system() {
    checkInstructed((await respond(INSTRUCTED, { instructions: LONG_SYSTEM })).output_text, LONG_SYSTEM);
    const turns = [{ role: "developer", content: LONG_SYSTEM }, ...said(INSTRUCTED)];
    checkInstructed((await responseHelped(turns)).output_text, LONG_SYSTEM);
  },

  async responses_format_helper() {
    const text = { format: { type: "json_schema", ...JSON_SCHEMA } };
    const whole = await client().responses.parse({ model: MODEL, input: GREET, store: false, text });
    for (const answer of [whole, await responseHelped(GREET, { text })]) {
      assert.deepEqual(JSON.parse(answer.output_text), GREETING);
    }
  },

  async responses_refusals() {
    const act = async (prompt) => {
      const error = await raises(() => events(prompt));
      assert.equal(error.status, REFUSALS[prompt], String(error));
    };
    await each(Object.keys(REFUSALS), act, create);
  },

  async responses_broken_streams() {
    const act = async (prompt) => {
      let told;
      try {
        told = await events(prompt, { tools: [FLAT_TOOL] });
      } catch (error) {
        assert(error instanceof OpenAI.APIError, String(error));
        return;
      }
      assert.equal(told.at(-1).type, "response.failed");
    };
    await each(BROKEN, act, create);
  },

  async responses_broken_streams_helper() {
    const act = async (prompt) => {
      const told = await responseHelped(prompt, { tools: [FLAT_TOOL] }).catch((error) => ({ status: "failed", error }));
      assert.equal(told.status, "failed", JSON.stringify(told));
    };
    await each(BROKEN, act, create);
  },

  async completions() {
    const ask = (prompt, options) => client().completions.create({ model: MODEL, prompt, max_tokens: 48, ...options });
    const read = async (prompt) => {
      const chunks = [];
      for await (const chunk of await ask(prompt, { stream: true, stream_options: { include_usage: true } })) chunks.push(chunk);
      return chunks;
    };
    const whole = await ask(HELLO);
    assert.match(whole.choices[0].text, /^hello from/);
    checkUsage(whole.usage);
    for (const writing of ODD) {
      const chunks = await read(`odd ${writing}`);
      const choices = chunks.flatMap((chunk) => chunk.choices);
      assert.match(choices.map((choice) => choice.text).join(""), /^hello from/, writing);
      assert.deepEqual(choices.map((choice) => choice.finish_reason).filter(Boolean), ["stop"], writing);
      checkUsage(chunks.at(-1).usage);
    }
    // The dialect has neither calls nor thoughts.
    const prompts = BROKEN.filter((prompt) => !/call|thought/.test(prompt));
    const act = async (prompt) => assert((await raises(() => read(prompt))) instanceof OpenAI.APIError);
    await each(prompts, act, create);
  },

  /** Every leg was tried: the node says so, and the client believes it. */
  async not_tried_again() {
    const patient = client(KEY, 2).chat.completions;
    const act = async (prompt) => {
      const error = await raises(() => patient.create(body({ messages: said(prompt) })));
      assert.equal(error.status, REFUSALS[prompt.replace(" stubborn", "")], String(error));
    };
    await each(STUBBORN, act, create);
  },

  async tried_again_when_told() {
    for (const prompt of PASSING) {
      const answer = await client(KEY, 2).chat.completions.create(body({ messages: said(prompt) }));
      assert.match(answer.choices[0].message.content, /^hello from/, prompt);
    }
  },

  async tried_again() {
    const patient = () => client(KEY, 2).chat.completions.create(body());
    const answer = await servedAfterWait(() => ask("refuse 500"), patient);
    assert.match(answer.choices[0].message.content, /hello/);
  },
};

await run(ENGINE ? cases : { ...cases, ...scripted });
