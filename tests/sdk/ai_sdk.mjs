// Conformance of a Waybill node with the Vercel AI SDK over four of its providers: OpenAI's chat and Responses, the one
// for compatible servers, Anthropic's.

import assert from "node:assert/strict";
import {
  BROKEN, CACHED, CITIES, CITY, ENDING_MAX, ENGINE, GREET, GREETING, HELLO, INSTRUCTED, KEY, LONG_SYSTEM, MODEL, ODD, OUTPUT,
  PNG, REFUSALS, REFUSALS_ON_MESSAGES, SAID_MAX, SCHEMA, SEE, SEEN, STRANGER, TOTAL_INPUT, UPSTREAM, URL_ROOT, WEATHER, checkInstructed,
  checkTold, degrees, each, library, raises, run, servedAfterWait, speaks,
} from "./conformance.mjs";

const { Output, generateText, jsonSchema, streamText, tool } = await library("ai");
const { createOpenAI } = await library("@ai-sdk/openai");
const { createAnthropic } = await library("@ai-sdk/anthropic");
const { createOpenAICompatible } = await library("@ai-sdk/openai-compatible");

/** The same model over each provider. */
function over(id = MODEL, apiKey = KEY) {
  const settings = { baseURL: `${URL_ROOT}/v1`, apiKey };
  const compatible = { ...settings, name: "waybill", includeUsage: true, supportsStructuredOutputs: true };
  return {
    chat: createOpenAI(settings).chat(id),
    responses: createOpenAI(settings).responses(id),
    compatible: createOpenAICompatible(compatible)(id),
    anthropic: createAnthropic(settings)(id),
  };
}
const models = over();
const unknown = over("no-such-model");
const strange = over(MODEL, STRANGER);
const ENDS = ENGINE ? ["stop", "length"] : ["stop"];
// What a small model has to be told besides.
const SAID = ENGINE ? { maxOutputTokens: SAID_MAX } : {};
const CALL = ENGINE ? { toolChoice: "required", maxOutputTokens: ENDING_MAX } : {};
const ENDING = ENGINE ? { maxOutputTokens: ENDING_MAX } : {};
// Every turn is sent whole; the last case leaves that to the node.
const providerOptions = { openai: { store: false } };
const weather = tool({
  description: "The weather of a city, now.",
  inputSchema: jsonSchema(CITY),
  execute: async ({ city }) => degrees(city),
});

function checkUsage(usage) {
  assert(usage.inputTokens > 0 && usage.outputTokens > 0, JSON.stringify(usage));
  if (ENGINE) return;
  assert.deepEqual([usage.inputTokens, usage.outputTokens], [TOTAL_INPUT, OUTPUT], JSON.stringify(usage));
  assert.equal(usage.inputTokenDetails?.cacheReadTokens ?? usage.cachedInputTokens, CACHED, JSON.stringify(usage));
}

const say = (model, prompt = HELLO, options = {}) => generateText({ model, prompt, providerOptions, maxRetries: 0, ...SAID, ...options });

/** What a stream told: its parts, how it says that it finished, and the errors that came with it. */
async function drained(model, prompt, options = {}) {
  const told = { errors: [], finish: "none", text: "", calls: [] };
  const onError = ({ error }) => told.errors.push(error);
  const result = streamText({ model, prompt, providerOptions, maxRetries: 0, onError, ...SAID, ...options });
  try {
    for await (const part of result.fullStream) {
      if (part.type === "finish") [told.finish, told.usage] = [part.finishReason, part.totalUsage];
      if (part.type === "text-delta") told.text += part.text;
      if (part.type === "tool-call") told.calls.push(part.input);
    }
  } catch (error) {
    told.errors.push(error);
  }
  return told;
}

const cases = {
  async generate(model) {
    const { text, finishReason, usage } = await say(model);
    assert(speaks(text), text);
    assert(ENDS.includes(finishReason), finishReason);
    checkUsage(usage);
  },
  async stream(model) {
    const told = await drained(model, HELLO);
    assert.deepEqual(told.errors, []);
    assert(ENDS.includes(told.finish) && speaks(told.text), JSON.stringify(told));
    checkUsage(told.usage);
  },
  async tools(model) {
    const tools = { weather };
    const { response, toolCalls } = await say(model, WEATHER, { tools, ...CALL });
    assert.deepEqual(toolCalls.map((call) => call.input), CITIES);
    const messages = [{ role: "user", content: WEATHER }, ...response.messages];
    const options = ENGINE ? { ...SAID, toolChoice: "none" } : {};
    const again = await generateText({ model, messages, tools, providerOptions, maxRetries: 0, ...options });
    checkTold(again.text);
  },
  async tools_stream(model) {
    const told = await drained(model, WEATHER, { tools: { weather }, ...CALL });
    assert.deepEqual([told.errors, told.calls, told.finish], [[], CITIES, "tool-calls"]);
  },
  async structured_output(model) {
    const output = Output.object({ schema: jsonSchema(SCHEMA) });
    const anthropic = { structuredOutputMode: "outputFormat" };
    const options = { ...providerOptions, anthropic };
    assert.deepEqual((await say(model, GREET, { output, providerOptions: options, ...ENDING })).output, GREETING);
    const told = await drained(model, GREET, { output, providerOptions: options, ...ENDING });
    assert.deepEqual([told.errors, JSON.parse(told.text)], [[], GREETING]);
  },
};

/** Prompts that the upstream of the harness answers by a script; no real model does. */
const scripted = {
  async errors(_model, provider) {
    for (const [failing, status] of [[unknown, 404], [strange, 401]]) {
      assert.equal((await raises(() => say(failing[provider]))).statusCode, status);
      const [error] = (await drained(failing[provider], HELLO)).errors;
      assert.equal(error?.statusCode, status);
    }
  },
  async steps(model) {
    const { steps, text } = await say(model, WEATHER, { tools: { weather }, stopWhen: ({ steps }) => steps.length >= 2 });
    assert.deepEqual(steps[0].toolCalls.map((call) => call.input), CITIES);
    checkTold(text);
  },
  /** The provider for Anthropic's API has models that it does not know call a tool, and only once. */
  async structured_output_by_default(model) {
    const output = Output.object({ schema: jsonSchema(SCHEMA) });
    const act = () => say(model, GREET, { output });
    if (UPSTREAM === "gemini" && model.provider.startsWith("anthropic")) {
      assert.match((await raises(act)).message, /disable_parallel_tool_use/);
    } else {
      assert.deepEqual((await act()).output, GREETING);
    }
  },
  async image(model) {
    const content = [
      { type: "text", text: SEE },
      { type: "file", data: PNG, mediaType: "image/png" },
    ];
    const prompt = [{ role: "user", content }];
    assert.equal((await say(model, prompt)).text, SEEN);
    assert.equal((await drained(model, prompt)).text, SEEN);
  },
  async long_system(model) {
    checkInstructed((await say(model, INSTRUCTED, { system: LONG_SYSTEM })).text, LONG_SYSTEM);
    checkInstructed((await drained(model, INSTRUCTED, { system: LONG_SYSTEM })).text, LONG_SYSTEM);
  },
  async odd_streams(model) {
    for (const writing of ODD) {
      const told = await drained(model, `odd ${writing}`);
      assert.deepEqual([told.errors, told.finish], [[], "stop"], writing);
      assert.match(told.text, /^hello from/, writing);
      checkUsage(told.usage);
    }
  },
  async refusals(model) {
    const act = async (prompt) => {
      const { statusCode } = await raises(() => say(model, prompt));
      const due = model.provider.startsWith("anthropic") ? REFUSALS_ON_MESSAGES : REFUSALS;
      assert.equal(statusCode, due[prompt]);
    };
    await each(Object.keys(REFUSALS), act, () => say(model));
  },
  async errors_in_a_good_status(model) {
    const act = async (prompt) => {
      const told = await drained(model, prompt);
      assert(told.errors.length > 0 && told.finish !== "stop", JSON.stringify(told));
    };
    await each(["stumble"], act, () => say(model));
  },
  async broken_streams(model) {
    const act = async (prompt) => {
      const told = await drained(model, prompt, { tools: { weather } });
      assert(told.errors.length > 0 && !["stop", "tool-calls"].includes(told.finish), JSON.stringify(told));
    };
    await each(BROKEN, act, () => say(model));
  },
  /** The library goes by the status alone. */
  async tried_again_at_once(model) {
    for (const status of [429, 503, 529]) {
      const answer = await say(model, `once ${status} ${model.provider}`, { maxRetries: 2 });
      assert.match(answer.text, /^hello from/, `${status}`);
    }
  },
  async tried_again(model) {
    const answer = await servedAfterWait(() => say(model, "refuse 500"), () => say(model, HELLO, { maxRetries: 2 }));
    assert.match(answer.text, /hello/);
  },
};

const chosen = ENGINE ? cases : { ...cases, ...scripted };
const all = {};
for (const [provider, model] of Object.entries(models)) {
  for (const [name, act] of Object.entries(chosen)) all[`${provider}_${name}`] = () => act(model, provider);
}
/** As the provider comes: what was said before is named by the ids of its items. */
const byReference = async () => {
  const sent = [];
  const noting = (url, init) => {
    sent.push(init.body);
    return fetch(url, init);
  };
  const model = createOpenAI({ baseURL: `${URL_ROOT}/v1`, apiKey: KEY, fetch: noting }).responses(MODEL);
  const tools = { weather };
  const first = await generateText({ model, tools, prompt: WEATHER, maxRetries: 0, stopWhen: ({ steps }) => steps.length >= 2 });
  assert.deepEqual(first.steps[0].toolCalls.map((call) => call.input), CITIES);
  assert.match(first.text, /hello/);
  const messages = [{ role: "user", content: WEATHER }, ...first.response.messages, { role: "user", content: HELLO }];
  const next = await generateText({ model, tools, messages, maxRetries: 0 });
  assert.match(next.text, /hello/);
  assert.match(sent.at(-1), /item_reference/);
};
await run(ENGINE ? all : { ...all, responses_by_reference: byReference });
