"""The OpenAI client with an idempotency key: it gives up after a second, tries again by itself, is told that its call
still runs, and gets its answer in the end, plain and streamed."""

import os

import openai

client = openai.OpenAI(
    base_url=os.environ["WAYBILL_URL"] + "/v1",
    api_key=os.environ["WAYBILL_KEY"],
    timeout=1.0,
    max_retries=5,
)
ask = {
    "model": os.environ["WAYBILL_MODEL"],
    "messages": [{"role": "user", "content": "say it once"}],
}

whole = client.chat.completions.with_raw_response.create(**ask, extra_headers={"Idempotency-Key": "sdk-1"})
assert whole.headers.get("x-idempotent-replay") == "true", whole.headers
assert whole.parse().choices[0].message.content == "late but once"

stream = client.chat.completions.create(**ask, stream=True, extra_headers={"Idempotency-Key": "sdk-2"})
assert stream.response.headers.get("x-idempotent-replay") == "true", stream.response.headers
text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
assert text == "late but once", text
print("ok")
