"""Conformance of a Waybill node with the official Anthropic client for Python, of both majors: the older presents its
key as `x-api-key` and speaks the API of 2023, the newer presents a bearer and speaks that of 2026."""

import json

import anthropic
from conformance import CITIES, CITY, KEY, LONG_SYSTEM, MODEL, PNG, REQUEST_ID, SCHEMA, STRANGER, URL, WEATHER, raises, run

TOOL = {"name": "weather", "description": "The weather of a city, now.", "input_schema": CITY}


def client(key=KEY):
    return anthropic.Anthropic(base_url=URL, api_key=key, max_retries=0, timeout=60)


def body(prompt="Say hello in one short sentence.", **options):
    settings = {"model": MODEL, "max_tokens": 2000, "messages": [{"role": "user", "content": prompt}]}
    return {**settings, **options}


def create(*prompt, **options):
    return client().messages.create(**body(*prompt, **options))


def check_usage(usage):
    assert usage.input_tokens > 0 and usage.output_tokens > 0, usage


def check_calls(message):
    calls = [block for block in message.content if block.type == "tool_use"]
    assert [call.input for call in calls] == [{"city": city} for city in CITIES], calls
    assert len({call.id for call in calls}) == 2, calls
    assert message.stop_reason == "tool_use", message.stop_reason


def message():
    answer = create()
    assert (answer.type, answer.role, answer.model) == ("message", "assistant", MODEL), answer
    assert answer.id.startswith("msg_"), answer.id
    assert "hello" in answer.content[0].text, answer
    assert answer.stop_reason == "end_turn", answer.stop_reason
    check_usage(answer.usage)


def headers():
    raw = client().messages.with_raw_response.create(**body())
    assert REQUEST_ID.match(raw.headers["request-id"]), raw.headers
    assert raw.headers["request-id"] == raw.headers["x-request-id"], raw.headers


def stream():
    events = list(create(stream=True))
    kinds = [event.type for event in events if event.type != "ping"]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"], kinds
    assert events[0].message.model == MODEL, events[0]
    text = "".join(event.delta.text for event in events if event.type == "content_block_delta")
    assert "hello" in text, text


def stream_helper():
    with client().messages.stream(**body()) as running:
        text = "".join(running.text_stream)
        final = running.get_final_message()
    assert final.content[0].text == text and "hello" in text, final
    check_usage(final.usage)


def thinking():
    answer = create("Please think.", thinking={"type": "enabled", "budget_tokens": 1024})
    assert [block.type for block in answer.content] == ["thinking", "text"], answer.content
    assert answer.content[0].thinking, answer.content


def tools():
    check_calls(create(WEATHER, tools=[TOOL]))


def tools_stream():
    with client().messages.stream(**body(WEATHER, tools=[TOOL])) as running:
        check_calls(running.get_final_message())


def tool_results():
    first = create(WEATHER, tools=[TOOL])
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": "4 degrees"}
        for block in first.content
        if block.type == "tool_use"
    ]
    messages = [
        {"role": "user", "content": WEATHER},
        {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in first.content]},
        {"role": "user", "content": results},
    ]
    answer = create(tools=[TOOL], messages=messages)
    assert "hello" in answer.content[-1].text and answer.stop_reason == "end_turn", answer


def structured_output():
    answer = create("Greet me as JSON.", output_config={"format": {"type": "json_schema", "schema": SCHEMA}})
    assert json.loads(answer.content[0].text) == {"text": "hello", "count": 1}, answer


def image():
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    answer = create([{"type": "image", "source": source}, {"type": "text", "text": "What is this?"}])
    assert answer.content[0].text, answer


def long_system():
    blocks = [{"type": "text", "text": LONG_SYSTEM, "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "Be brief."}]
    assert create(system=blocks).content[0].text


def count_tokens():
    counted = client().messages.count_tokens(model=MODEL, messages=body()["messages"])
    assert counted.input_tokens > 0, counted


def models():
    listed = client().models.list()
    assert MODEL in [model.id for model in listed.data], listed
    assert all(model.type == "model" for model in listed.data), listed


def not_found():
    error = raises(anthropic.NotFoundError, lambda: create(model="no-such-model"))
    assert error.body["type"] == "error" and error.body["error"]["type"] == "not_found_error", error.body


def unauthorized():
    error = raises(anthropic.AuthenticationError, lambda: client(STRANGER).messages.create(**body()))
    assert error.body["error"]["type"] == "authentication_error", error.body


def bad_request():
    error = raises(anthropic.BadRequestError, lambda: create(messages=[]))
    assert error.body["error"]["type"] == "invalid_request_error", error.body


def bad_request_stream():
    raises(anthropic.BadRequestError, lambda: list(create(messages=[], stream=True)))


def overloaded():
    error = raises(anthropic.APIStatusError, lambda: create("overload"))
    assert error.status_code in (429, 503, 529), error
    assert error.body["type"] == "error", error.body


def cut_stream():
    for prompt in ("cut", "break"):
        raises(anthropic.APIError, lambda: list(create(prompt, stream=True)))


def cut_stream_helper():
    def act():
        with client().messages.stream(**body("cut")) as running:
            running.get_final_message()

    raises(anthropic.APIError, act)


if __name__ == "__main__":
    run([
        message, headers, stream, stream_helper, thinking, tools, tools_stream, tool_results, structured_output, image,
        long_system, count_tokens, models, not_found, unauthorized, bad_request, bad_request_stream, overloaded,
        cut_stream, cut_stream_helper,
    ])
