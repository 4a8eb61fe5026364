"""One turn with LiteLLM as a client of a Waybill node, over OpenAI's chat and Responses and Anthropic's Messages, whole
and streamed; what fails is tried again. Reads WAYBILL_URL and WAYBILL_KEY; prints what the model said."""

import os

import litellm

URL, KEY = os.environ["WAYBILL_URL"], os.environ["WAYBILL_KEY"]
SAYS = "The note says: nothing"
MESSAGES = [{"role": "user", "content": "What does the note say?"}]

litellm.telemetry = False
for model, base in (("openai/m", f"{URL}/v1"), ("anthropic/m", URL)):
    settings = {"model": model, "api_base": base, "api_key": KEY, "messages": MESSAGES, "max_tokens": 500}
    # The very first call fails once.
    settings["num_retries"] = 2
    whole = litellm.completion(**settings)
    assert whole.choices[0].message.content == SAYS, whole
    assert whole.usage.completion_tokens == 20, whole.usage
    chunks = list(litellm.completion(**settings, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == SAYS, chunks
    assert chunks[-1].usage.completion_tokens == 20, chunks[-1]
    print(f"{model}: {whole.choices[0].message.content}")

answer = litellm.responses(model="openai/m", api_base=f"{URL}/v1", api_key=KEY, input=MESSAGES)
assert answer.output[0].content[0].text == SAYS, answer
