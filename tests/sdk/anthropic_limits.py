"""The Anthropic client under a limit that is reached: the error that it has for this, with the members of the body."""

import os

import anthropic

client = anthropic.Anthropic(
    base_url=os.environ["WAYBILL_URL"],
    api_key=os.environ["WAYBILL_KEY"],
    max_retries=0,
)
ask = {
    "model": os.environ["WAYBILL_MODEL"],
    "max_tokens": 10,
    "messages": [{"role": "user", "content": "say it once"}],
}

try:
    client.messages.create(**ask)
except anthropic.RateLimitError as error:
    told = error.body["error"]
    assert told["type"] == "rate_limit_error", told
    assert told["code"] == "DAILY_LIMIT_EXCEEDED" and told["remaining"] == 0, told
    assert error.response.headers["x-ratelimit-limit-requests"] == "1"
else:
    raise AssertionError("it was admitted")
print("ok")
