"""What the conformance scripts share: where the node is, scripted prompts, and the running of cases.

Scripts read WAYBILL_URL (http://HOST:PORT), WAYBILL_KEY and WAYBILL_MODEL. They print `ok NAME` per case, or
`skip NAME: why`, and exit 1 after the last case if one failed. The upstream behind the node answers by the words of
the last prompt: `weather` (two parallel calls), `JSON`, `think`, `cut`, `break`, `overload`, else a greeting.
"""

import os
import re
import sys
import traceback

URL = os.environ["WAYBILL_URL"].rstrip("/")
KEY = os.environ["WAYBILL_KEY"]
MODEL = os.environ["WAYBILL_MODEL"]
REQUEST_ID = re.compile(r"^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")
STRANGER = "sk-tenant-0000000000000000000000"
CITIES = ["Oslo", "Bergen"]
WEATHER = "What is the weather in Oslo and in Bergen?"
LONG_SYSTEM = "You answer for a freight office. " * 1500
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
SCHEMA = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "count": {"type": "integer"}},
    "required": ["text", "count"],
    "additionalProperties": False,
}
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}


class Skip(Exception):
    """The node under test has nothing to run this case on."""


def raises(kinds, act):
    """The error of one of `kinds` that `act` must end with."""
    try:
        act()
    except kinds as error:
        return error
    raise AssertionError(f"no error, one of {kinds} was due")


def run(cases):
    """Runs every case, whatever the others did, and exits."""
    failed = 0
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
