// What the conformance scripts for Node share: where the node is, the libraries, scripted prompts, the running of cases.
// Scripts read WAYBILL_URL (http://HOST:PORT), WAYBILL_KEY, WAYBILL_MODEL and WAYBILL_UPSTREAM (whose API the upstream
// speaks: openai, anthropic or gemini). The upstream behind the node answers by the words of the last prompt, see
// tests/system/sdk/actor.rs. The libraries are looked up in target/sdk/node (scripts/setup.sh sdk), or in
// WAYBILL_SDK_NODE.
//
// With --engine the model is a real one, and small: only the cases that any model can answer are run, an answer says
// something rather than "hello", and what it must hold is in the schema, which its engine has it keep to.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const home = process.env.WAYBILL_SDK_NODE ?? fileURLToPath(new URL("../../target/sdk/node", import.meta.url));
const { resolve } = createRequire(join(home, "package.json"));

/** Imports a library of target/sdk/node. */
export const library = (name) => import(pathToFileURL(resolve(name)).href);

export const ENGINE = process.argv.includes("--engine");
export const { WAYBILL_URL, WAYBILL_KEY: KEY, WAYBILL_MODEL: MODEL } = process.env;
export const UPSTREAM = process.env.WAYBILL_UPSTREAM ?? "openai";
assert(WAYBILL_URL && KEY && MODEL, "set WAYBILL_URL, WAYBILL_KEY and WAYBILL_MODEL");
export const URL_ROOT = WAYBILL_URL.replace(/\/$/, "");
export const REQUEST_ID = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
export const STRANGER = "sk-tenant-0000000000000000000000";
export const HELLO = "Say hello in one short sentence.";
// A small model makes the call that it has read; left alone it makes none.
export const WEATHER = ENGINE
  ? '{"name": "weather", "parameters": {"city": "Oslo"}}'
  : "What is the weather in Oslo and in Bergen?";
export const GREET = "Greet me as JSON.";
export const SEE = "What is this?";
export const INSTRUCTED = "How long are your instructions?";
export const CITIES = ENGINE ? [{ city: "Oslo" }] : [{ city: "Oslo" }, { city: "Bergen" }];
export const GREETING = { text: "hello", count: 1 };
export const LONG_SYSTEM = "You answer for a freight office. ".repeat(1500);
export const PNG =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
/** What a schema says in addition before a real model. */
const only = (value) => (ENGINE ? { enum: [value] } : {});
export const CITY = {
  type: "object",
  properties: { city: { type: "string", ...only("Oslo") } },
  required: ["city"],
  additionalProperties: false,
};
export const SCHEMA = {
  type: "object",
  properties: { text: { type: "string", ...only("hello") }, count: { type: "integer", ...only(1) } },
  required: ["text", "count"],
  additionalProperties: false,
};
// Limits of tokens of a real model: for what it says by itself, and for what ends by itself.
export const SAID_MAX = 32;
export const ENDING_MAX = 200;
// Tokens of every scripted answer. Gemini does not tell what it writes to a cache.
export const TOTAL_INPUT = 17;
export const CACHED = 4;
export const CACHE_WRITE = UPSTREAM === "gemini" ? 0 : 3;
export const OUTPUT = 20;
// What the upstream says before a byte of an answer, and the status that a caller of OpenAI's API sees. An upstream's
// 401 or 404 is about what the gateway sent, never about its caller.
export const REFUSALS = {
  "refuse 400": 400, "refuse 401": 502, "refuse 404": 502, "refuse 429": 429, "refuse 500": 502, "refuse 503": 503,
  "refuse 529": 503,
};
// An upstream that says 529 is overloaded; Messages has that word too.
export const REFUSALS_ON_MESSAGES = { ...REFUSALS, "refuse 529": 529 };
export const RETRY_AFTER = "7";
// What the model says of what it was given: an image, and what its calls gave.
export const SEEN = `hello, seen image/png ${PNG}`;
const TOLD = "hello, told 4 degrees in Oslo and 4 degrees in Bergen";
// Failures that are told to be final, as many as tests/system/sdk.rs knows of: every leg was tried, and none said when to
// come again.
export const STUBBORN = ["refuse 404 stubborn", "refuse 500 stubborn"];
// What the upstream says once: callers are told when to come again, and are served then.
export const PASSING = ["once 429", "once 503", "once 529"];
// Streams that end before their end: a closed and a reset connection, a well-framed end, an error; in a text, in a call,
// in a thought, and after the last piece of content.
const PLACES = ["text", "call", "thought", "late"];
export const BROKEN = ["cut", "reset", "end", "break"].flatMap((how) => PLACES.map((place) => `${how} ${place}`));
// Streams that are whole, in writings that servers have: one of them has an event that nobody can read.
export const ODD = [
  "crlf", "bom", "comments", "unspaced", "lines", "bytes", "gzip", "counting", "endless", "parted", "unmarked", "garbled",
  "thoughtful",
];

/** Thrown by a case that the node under test has nothing to run on. */
export class Skip extends Error {}

/** What the tool gives. */
export const degrees = (city) => `4 degrees in ${city}`;

/** Checks the answer to what the calls gave. */
export function checkTold(text) {
  if (ENGINE) assert(text);
  else assert.equal(text, TOLD);
}

/** Checks the answer to INSTRUCTED: not a word of the instructions was lost. */
export function checkInstructed(text, instructions) {
  assert.equal(text, `hello, instructed in ${instructions.trim().split(/\s+/).length} words`);
}

/** Whether a text is an answer to HELLO. */
export const speaks = (text) => (ENGINE ? text.length > 0 : text.includes("hello"));

/** The error that `act` must end with. */
export async function raises(act) {
  let answer;
  try {
    answer = await act();
  } catch (error) {
    return error;
  }
  throw new assert.AssertionError({ message: `no error, one was due: ${JSON.stringify(answer)}` });
}

/**
 * Calls `act` with every prompt, all of which fail, and `mend`, which succeeds, after each: failures in a row would have
 * the node pass its upstream by.
 */
export async function each(prompts, act, mend) {
  for (const prompt of prompts) {
    try {
      await act(prompt);
    } catch (error) {
      throw new Error(`${prompt}: ${error}`, { cause: error });
    }
    await mend();
  }
}

/** Three failures make the node pass its only upstream by; a client that tries again when it is told to is served. */
export async function servedAfterWait(once, patient) {
  for (let time = 0; time < 3; time += 1) await raises(once);
  const begun = performance.now();
  const answer = await patient();
  assert(performance.now() - begun > 300, "it was served at once: nothing was tried again");
  return answer;
}

/** Runs every case, whatever the others did; `ok NAME` for each that holds. */
export async function run(cases) {
  console.log(`1..${Object.keys(cases).length}`);
  for (const [name, act] of Object.entries(cases)) {
    try {
      await act();
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
}
