"""The OpenAI client under a limit of one call a day: what is left is in the headers of its answer, and the next call is
the error that it has for this, with the code and the members of the body."""

import os

import openai

client = openai.OpenAI(
    base_url=os.environ["WAYBILL_URL"] + "/v1",
    api_key=os.environ["WAYBILL_KEY"],
    max_retries=0,
)
ask = {
    "model": os.environ["WAYBILL_MODEL"],
    "max_tokens": 10,
    "messages": [{"role": "user", "content": "say it once"}],
}

answer = client.chat.completions.with_raw_response.create(**ask)
headers = answer.headers
assert headers["x-ratelimit-limit-requests"] == "1", headers
assert headers["x-ratelimit-remaining-requests"] == "0", headers
assert headers["x-ratelimit-limit-cost"] == "1.000000000", headers
assert headers["x-quota-reset"], headers

for stream in (False, True):
    try:
        client.chat.completions.create(**ask, stream=stream)
    except openai.RateLimitError as error:
        assert error.code == "DAILY_LIMIT_EXCEEDED", error
        assert error.type == "rate_limit_error", error
        assert error.body["limit"] == 1 and error.body["scope"] == "per_api_key", error.body
        assert int(error.response.headers["retry-after"]) >= 1
    else:
        raise AssertionError("it was admitted")
print("ok")
