// Conformance of a Waybill node with the Vercel AI SDK over four of its providers: OpenAI's chat and Responses, the one
// for compatible servers, Anthropic's.

import assert from "node:assert/strict";
import { CITIES, CITY, HELLO, KEY, LONG_SYSTEM, MODEL, PNG, SCHEMA, URL_ROOT, WEATHER, library, run } from "./conformance.mjs";

const { Output, generateText, jsonSchema, streamText, tool } = await library("ai");
const { createOpenAI } = await library("@ai-sdk/openai");
const { createAnthropic } = await library("@ai-sdk/anthropic");
const { createOpenAICompatible } = await library("@ai-sdk/openai-compatible");

const settings = { baseURL: `${URL_ROOT}/v1`, apiKey: KEY };
const openai = createOpenAI(settings);
const models = {
  chat: openai.chat(MODEL),
  responses: openai.responses(MODEL),
  compatible: createOpenAICompatible({ ...settings, name: "waybill", includeUsage: true, supportsStructuredOutputs: true })(MODEL),
  anthropic: createAnthropic(settings)(MODEL),
};
const weather = tool({
  description: "The weather of a city, now.",
  inputSchema: jsonSchema(CITY),
  execute: async ({ city }) => `4 degrees in ${city}`,
});

const cases = {
  async generate(model) {
    const { text, finishReason, usage } = await generateText({ model, prompt: HELLO, maxRetries: 0 });
    assert.match(text, /hello/);
    assert.equal(finishReason, "stop");
    assert(usage.inputTokens > 0 && usage.outputTokens > 0, JSON.stringify(usage));
  },
  async stream(model) {
    const errors = [];
    const result = streamText({ model, prompt: HELLO, maxRetries: 0, onError: ({ error }) => errors.push(error) });
    let text = "";
    for await (const piece of result.textStream) text += piece;
    assert.deepEqual(errors, []);
    assert.match(text, /hello/);
    assert.equal(await result.finishReason, "stop");
  },
  async tools(model) {
    const { steps, text } = await generateText({
      model, prompt: WEATHER, tools: { weather }, maxRetries: 0, stopWhen: ({ steps }) => steps.length >= 2,
    });
    assert.deepEqual(steps[0].toolCalls.map((call) => call.input), CITIES);
    assert.match(text, /hello/);
  },
  async tools_stream(model) {
    const calls = [];
    const errors = [];
    const result = streamText({ model, prompt: WEATHER, tools: { weather }, maxRetries: 0, onError: ({ error }) => errors.push(error) });
    for await (const part of result.fullStream) if (part.type === "tool-call") calls.push(part.input);
    assert.deepEqual(errors, []);
    assert.deepEqual(calls, CITIES);
    assert.equal(await result.finishReason, "tool-calls");
  },
  async structured_output(model) {
    const output = Output.object({ schema: jsonSchema(SCHEMA) });
    const result = await generateText({ model, prompt: "Greet me as JSON.", output, maxRetries: 0 });
    assert.deepEqual(result.output, { text: "hello", count: 1 });
  },
  async image(model) {
    const content = [
      { type: "text", text: "What is this?" },
      { type: "file", data: PNG, mediaType: "image/png" },
    ];
    assert((await generateText({ model, messages: [{ role: "user", content }], maxRetries: 0 })).text);
  },
  async long_system(model) {
    assert((await generateText({ model, system: LONG_SYSTEM, prompt: HELLO, maxRetries: 0 })).text);
  },
  async overloaded(model) {
    await assert.rejects(generateText({ model, prompt: "overload", maxRetries: 0 }));
  },
  async cut_stream(model) {
    for (const prompt of ["cut", "break"]) {
      const errors = [];
      const result = streamText({ model, prompt, maxRetries: 0, onError: ({ error }) => errors.push(error) });
      let finish = "none";
      try {
        for await (const part of result.fullStream) if (part.type === "finish") finish = part.finishReason;
      } catch (error) {
        errors.push(error);
      }
      assert(errors.length > 0 && finish !== "stop", `${prompt}: ${finish}, ${errors.length} errors`);
    }
  },
};

const all = {};
for (const [over, model] of Object.entries(models)) {
  for (const [name, act] of Object.entries(cases)) all[`${over}_${name}`] = () => act(model);
}
await run(all);
