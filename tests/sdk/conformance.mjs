// What the conformance scripts for Node share: where the node is, the libraries, scripted prompts, the running of cases.
// The upstream behind the node answers by the words of the last prompt: `weather` (two parallel calls), `JSON`, `think`,
// `cut`, `break`, `overload`, else a greeting.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const home = process.env.WAYBILL_SDK_NODE ?? fileURLToPath(new URL("../../target/sdk/node", import.meta.url));
const { resolve } = createRequire(join(home, "package.json"));

/** Imports a library of target/sdk/node (scripts/setup.sh sdk). */
export const library = (name) => import(pathToFileURL(resolve(name)).href);

export const { WAYBILL_URL, WAYBILL_KEY: KEY, WAYBILL_MODEL: MODEL } = process.env;
assert(WAYBILL_URL && KEY && MODEL, "set WAYBILL_URL, WAYBILL_KEY and WAYBILL_MODEL");
export const URL_ROOT = WAYBILL_URL.replace(/\/$/, "");
export const STRANGER = "sk-tenant-0000000000000000000000";
export const HELLO = "Say hello in one short sentence.";
export const WEATHER = "What is the weather in Oslo and in Bergen?";
export const CITIES = [{ city: "Oslo" }, { city: "Bergen" }];
export const LONG_SYSTEM = "You answer for a freight office. ".repeat(1500);
export const PNG =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
export const CITY = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
export const SCHEMA = {
  type: "object",
  properties: { text: { type: "string" }, count: { type: "integer" } },
  required: ["text", "count"],
  additionalProperties: false,
};

/** Runs every case, whatever the others did; `ok NAME` for each that holds. */
export async function run(cases) {
  for (const [name, act] of Object.entries(cases)) {
    try {
      await act();
      console.log(`ok ${name}`);
    } catch (error) {
      console.log(`not ok ${name}`);
      console.error(error);
      process.exitCode = 1;
    }
  }
}
