"""What the conformance scripts share: where the node is, scripted prompts, and the running of cases.

Scripts read WAYBILL_URL (http://HOST:PORT), WAYBILL_KEY, WAYBILL_MODEL and WAYBILL_UPSTREAM (whose API the upstream
speaks: openai, anthropic or gemini). They print `1..CASES`, then `ok NAME` per case or `skip NAME: why`, and exit 1 after
the last case if one failed. The upstream behind the node answers by the words of the last prompt, see
tests/system/sdk/actor.rs.

With --engine the model is a real one, and small: only the cases that any model can answer are run, an answer says
something rather than "hello", and what it must hold is in the schema, which its engine has it keep to.
"""

import os
import re
import sys
import time
import traceback

ENGINE = "--engine" in sys.argv[1:]
URL = os.environ["WAYBILL_URL"].rstrip("/")
KEY = os.environ["WAYBILL_KEY"]
MODEL = os.environ["WAYBILL_MODEL"]
UPSTREAM = os.environ.get("WAYBILL_UPSTREAM", "openai")
REQUEST_ID = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")
STRANGER = "sk-tenant-0000000000000000000000"
HELLO = "Say hello in one short sentence."
# A small model makes the call that it has read; left alone it makes none.
WEATHER = (
    '{"name": "weather", "parameters": {"city": "Oslo"}}' if ENGINE else "What is the weather in Oslo and in Bergen?"
)
GREET = "Greet me as JSON."
SEE = "What is this?"
INSTRUCTED = "How long are your instructions?"
CITIES = [{"city": "Oslo"}] if ENGINE else [{"city": "Oslo"}, {"city": "Bergen"}]
GREETING = {"text": "hello", "count": 1}
LONG_SYSTEM = "You answer for a freight office. " * 1500
BRIEF = "Be brief."
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


def only(value):
    """What a schema says in addition before a real model."""
    return {"enum": [value]} if ENGINE else {}


SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string", **only("hello")}, "count": {"type": "integer", **only(1)}},
    "required": ["text", "count"],
    "additionalProperties": False,
}
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", **only("Oslo")}},
    "required": ["city"],
    "additionalProperties": False,
}
# Limits of tokens of a real model: for what it says by itself, and for what ends by itself.
SAID_MAX, ENDING_MAX = 32, 200
# Tokens of every scripted answer. Gemini does not tell what it writes to a cache.
TOTAL_INPUT, CACHED, OUTPUT = 17, 4, 20
CACHE_WRITE = 0 if UPSTREAM == "gemini" else 3
# What the upstream says before a byte of an answer, and the status that a caller of OpenAI's API sees. An upstream's
# 401 or 404 is about what the gateway sent, never about its caller.
REFUSALS = {
    "refuse 400": 400, "refuse 401": 502, "refuse 404": 502, "refuse 429": 429, "refuse 500": 502, "refuse 503": 503,
    "refuse 529": 503,
}
# An upstream that says 529 is overloaded; Messages has that word too.
REFUSALS_ON_MESSAGES = {**REFUSALS, "refuse 529": 529}
RETRY_AFTER = "7"
# What the model says of what it was given: an image, instructions, and what its calls gave.
SEEN = f"hello, seen image/png {PNG}"
TOLD = "hello, told 4 degrees in Oslo and 4 degrees in Bergen"
# Failures that are told to be final, as many as tests/system/sdk.rs knows of: every leg was tried, and none said when to
# come again.
STUBBORN = ["refuse 404 stubborn", "refuse 500 stubborn"]
# What the upstream says once: callers are told when to come again, and are served then.
PASSING = ["once 429", "once 503", "once 529"]
# Streams that end before their end: a closed and a reset connection, a well-framed end, an error; in a text, in a call,
# in a thought, and after the last piece of content.
BROKEN = [
    f"{how} {where}" for how in ("cut", "reset", "end", "break") for where in ("text", "call", "thought", "late")
]
# Streams that are whole, in writings that servers have: one of them has an event that nobody can read.
ODD = [
    "crlf", "bom", "comments", "unspaced", "lines", "bytes", "gzip", "counting", "endless", "parted", "unmarked", "garbled",
    "thoughtful",
]


def degrees(city):
    """What the tool gives."""
    return f"4 degrees in {city}"


def check_told(text):
    """The answer to what the calls gave."""
    assert text if ENGINE else text == TOLD, text


def check_instructed(text, *instructions):
    """The answer to INSTRUCTED: not a word of the instructions was lost."""
    words = sum(len(each.split()) for each in instructions)
    assert text == f"hello, instructed in {words} words", text


class Skip(Exception):
    """The node under test has nothing to run this case on."""


def speaks(text):
    """Whether a text is an answer to HELLO."""
    return bool(text) if ENGINE else "hello" in text


def raises(kinds, act):
    """The error of one of `kinds` that `act` must end with."""
    try:
        answer = act()
    except kinds as error:
        return error
    raise AssertionError(f"no error, one of {kinds} was due: {answer!r}")


def each(prompts, act, mend):
    """Calls `act` with every prompt, all of which fail, and `mend`, which succeeds, after each: failures in a row would
    have the node pass its upstream by."""
    for prompt in prompts:
        try:
            act(prompt)
        except Exception as error:
            raise AssertionError(f"{prompt}: {error!r}") from error
        mend()


def served_after_wait(kinds, once, patient):
    """Three failures make the node pass its only upstream by; a client that tries again when it is told to is served."""
    for _ in range(3):
        raises(kinds, once)
    begun = time.monotonic()
    answer = patient()
    assert time.monotonic() - begun > 0.3, "it was served at once: nothing was tried again"
    return answer


def run(cases):
    """Runs every case, whatever the others did, and exits."""
    failed = 0
    print(f"1..{len(cases)}", flush=True)
    for case in cases:
        try:
            case()
            print(f"ok {case.__name__}", flush=True)
        except Skip as why:
            print(f"skip {case.__name__}: {why}", flush=True)
        except Exception:
            failed += 1
            print(f"not ok {case.__name__}", flush=True)
            traceback.print_exc()
    sys.exit(1 if failed else 0)
