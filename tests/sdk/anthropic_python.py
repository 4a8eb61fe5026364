"""Conformance of a Waybill node with the official Anthropic client for Python, of both majors: the older presents its
key as `x-api-key` and speaks the API of 2023, the newer presents a bearer and speaks that of 2026. Their asynchronous
halves are included."""

import asyncio
import json

import anthropic
from conformance import (
    BRIEF, BROKEN, CACHED, CACHE_WRITE, CITIES, CITY, ENDING_MAX, ENGINE, GREET, GREETING, HELLO, INSTRUCTED, KEY, LONG_SYSTEM,
    MODEL, ODD, OUTPUT, PASSING, PNG, REFUSALS_ON_MESSAGES, REQUEST_ID, RETRY_AFTER, SAID_MAX, SCHEMA, SEE, SEEN, STRANGER,
    STUBBORN, TOTAL_INPUT, URL, WEATHER, check_instructed, check_told, degrees, each, raises, run, served_after_wait, speaks,
)
from pydantic import BaseModel, ConfigDict

TOOL = {"name": "weather", "description": "The weather of a city, now.", "input_schema": CITY}
# What a small model has to be told besides.
CALL = {"tool_choice": {"type": "any"}, "max_tokens": ENDING_MAX} if ENGINE else {}
NO_CALL = {"tool_choice": {"type": "none"}} if ENGINE else {}
DOCUMENT = {"max_tokens": ENDING_MAX} if ENGINE else {}


def client(key=KEY, retries=0):
    return anthropic.Anthropic(base_url=URL, api_key=key, max_retries=retries, timeout=120)


def body(prompt=HELLO, **options):
    settings = {"model": MODEL, "max_tokens": SAID_MAX if ENGINE else 2000, "messages": [{"role": "user", "content": prompt}]}
    return {**settings, **options}


def create(prompt=HELLO, retries=0, **options):
    return client(retries=retries).messages.create(**body(prompt, **options))


def final(prompt=HELLO, **options):
    with client().messages.stream(**body(prompt, **options)) as running:
        return running.get_final_message()


async def final_asynchronously(prompt, **options):
    async with anthropic.AsyncAnthropic(base_url=URL, api_key=KEY, max_retries=0, timeout=120) as patient:
        async with patient.messages.stream(**body(prompt, **options)) as running:
            return await running.get_final_message()


class Greeting(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str
    count: int


def check_usage(usage):
    assert usage.input_tokens + (usage.cache_read_input_tokens or 0) > 0 and usage.output_tokens > 0, usage
    if ENGINE:
        return
    assert usage.input_tokens == TOTAL_INPUT - CACHED - CACHE_WRITE, usage
    assert (usage.cache_read_input_tokens or 0) == CACHED, usage
    assert (usage.cache_creation_input_tokens or 0) == CACHE_WRITE, usage
    assert usage.output_tokens == OUTPUT, usage


def check_calls(message):
    calls = [block for block in message.content if block.type == "tool_use"]
    assert [call.input for call in calls] == CITIES, calls
    assert len({call.id for call in calls}) == len(CITIES), calls
    assert message.stop_reason == "tool_use", message.stop_reason


def check_end(message):
    assert message.stop_reason in (("end_turn", "max_tokens") if ENGINE else ("end_turn",)), message.stop_reason


def message():
    answer = create()
    assert (answer.type, answer.role, answer.model) == ("message", "assistant", MODEL), answer
    assert answer.id.startswith("msg_"), answer.id
    assert speaks(answer.content[0].text), answer
    check_end(answer)
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
    assert speaks(text), text


def stream_helper():
    with client().messages.stream(**body()) as running:
        text = "".join(running.text_stream)
        answer = running.get_final_message()
    assert answer.content[0].text == text and speaks(text), answer
    check_end(answer)
    check_usage(answer.usage)


def thinking():
    answer = create("Please think.", thinking={"type": "enabled", "budget_tokens": 1024})
    assert [block.type for block in answer.content] == ["thinking", "text"], answer.content
    assert answer.content[0].thinking, answer.content


def thinking_again():
    """Thoughts go back with their turn, streamed or not, and are no reason to refuse it."""
    wants = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    for first in (create("Please think.", **wants), final("Please think.", **wants)):
        messages = [
            {"role": "user", "content": "Please think."},
            {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in first.content]},
            {"role": "user", "content": HELLO},
        ]
        assert "hello" in create(messages=messages, **wants).content[-1].text


def tools():
    check_calls(create(WEATHER, tools=[TOOL], **CALL))


def tools_stream():
    check_calls(final(WEATHER, tools=[TOOL], **CALL))


def tool_results():
    first = create(WEATHER, tools=[TOOL], **CALL)
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": degrees(block.input["city"])}
        for block in first.content
        if block.type == "tool_use"
    ]
    messages = [
        {"role": "user", "content": WEATHER},
        {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in first.content]},
        {"role": "user", "content": results},
    ]
    answer = create(tools=[TOOL], messages=messages, **NO_CALL)
    check_told(answer.content[-1].text)
    check_end(answer)


def structured_output():
    answer = create(GREET, output_config={"format": {"type": "json_schema", "schema": SCHEMA}}, **DOCUMENT)
    assert json.loads(answer.content[0].text) == GREETING, answer


def image():
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    parts = [{"type": "image", "source": source}, {"type": "text", "text": SEE}]
    for answer in (create(parts), final(parts)):
        assert answer.content[0].text == SEEN, answer


def image_in_a_result():
    """What a tool gives may be an image: it is seen whatever the upstream's results can hold."""
    first = create(WEATHER, tools=[TOOL])
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "image", "source": source}]}
        for block in first.content
        if block.type == "tool_use"
    ]
    messages = [
        {"role": "user", "content": WEATHER},
        {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in first.content]},
        {"role": "user", "content": results[:1] + [{**results[1], "content": "none"}]},
        {"role": "assistant", "content": "There it is."},
        {"role": "user", "content": SEE},
    ]
    assert create(tools=[TOOL], messages=messages).content[0].text == SEEN


def long_system():
    long = {"type": "text", "text": LONG_SYSTEM, "cache_control": {"type": "ephemeral"}}
    system = [long, {"type": "text", "text": BRIEF}]
    for answer in (create(INSTRUCTED, system=system), final(INSTRUCTED, system=system)):
        check_instructed(answer.content[0].text, LONG_SYSTEM, BRIEF)


def structured_output_helper():
    """The schema of a class of the caller's, whole and streamed."""
    answer = client().messages.parse(**body(GREET), output_format=Greeting)
    assert answer.parsed_output == Greeting(**GREETING), answer
    assert final(GREET, output_format=Greeting).parsed_output == Greeting(**GREETING)


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


def check_odd(writing, answer):
    assert answer.content[-1].text.startswith("hello from"), (writing, answer)
    assert answer.stop_reason == "end_turn", (writing, answer)
    check_usage(answer.usage)


def odd_streams():
    for writing in ODD:
        check_odd(writing, final(f"odd {writing}"))


def odd_streams_asynchronous():
    for writing in ODD:
        check_odd(writing, asyncio.run(final_asynchronously(f"odd {writing}")))


def odd_streams_event_by_event():
    for writing in ODD:
        events = list(create(f"odd {writing}", stream=True))
        deltas = [event.delta for event in events if event.type == "content_block_delta"]
        text = "".join(delta.text for delta in deltas if delta.type == "text_delta")
        assert text.startswith("hello from"), (writing, text)
        assert events[-1].type == "message_stop", (writing, events[-1])


def refusals():
    for stream in (False, True):
        def act(prompt):
            error = raises(anthropic.APIStatusError, lambda: create(prompt, stream=stream))
            due = REFUSALS_ON_MESSAGES[prompt]
            assert error.status_code == due, error
            assert due < 503 or error.body["error"]["type"] == "overloaded_error", error.body
            assert error.body["type"] == "error" and error.body["error"]["message"], error.body
            if due == 429:
                assert error.body["error"]["type"] == "rate_limit_error", error.body
                assert error.response.headers["retry-after"] == RETRY_AFTER, error.response.headers

        each(REFUSALS_ON_MESSAGES, act, create)


def errors_in_a_good_status():
    """The first thing that comes is an error: it is one for the caller too, whatever the status was."""
    for stream in (False, True):
        def act(prompt):
            error = raises(anthropic.APIStatusError, lambda: create(prompt, stream=stream))
            assert error.status_code >= 500, error

        each(["stumble"], act, create)


def broken_answers():
    each(["cut text", "end text"], lambda prompt: raises(anthropic.InternalServerError, lambda: create(prompt)), create)


def broken_streams():
    def act(prompt):
        raises(anthropic.APIError, lambda: list(create(prompt, tools=[TOOL], stream=True)))

    each(BROKEN, act, create)


def broken_streams_helper():
    each(BROKEN, lambda prompt: raises(anthropic.APIError, lambda: final(prompt, tools=[TOOL])), create)


def broken_streams_asynchronous():
    def act(prompt):
        raises(anthropic.APIError, lambda: asyncio.run(final_asynchronously(prompt, tools=[TOOL])))

    each(BROKEN, act, create)


def not_tried_again():
    """Every leg was tried: the node says so, and the client believes it."""
    each(STUBBORN, lambda prompt: raises(anthropic.APIStatusError, lambda: create(prompt, retries=2)), create)


def tried_again_when_told():
    for prompt in PASSING:
        answer = create(prompt, retries=2)
        assert answer.content[0].text.startswith("hello from"), (prompt, answer)


def tried_again():
    def once():
        return create("refuse 500")

    answer = served_after_wait(anthropic.APIStatusError, once, lambda: create(retries=2))
    assert "hello" in answer.content[0].text, answer


ANY_MODEL = [
    message, headers, stream, stream_helper, tools, tools_stream, tool_results, structured_output, count_tokens, models,
    not_found, unauthorized, bad_request, bad_request_stream,
]
SCRIPTED = [
    thinking, thinking_again, image, image_in_a_result, long_system, structured_output_helper, odd_streams,
    odd_streams_asynchronous, odd_streams_event_by_event, refusals, errors_in_a_good_status, broken_answers, broken_streams,
    broken_streams_asynchronous, broken_streams_helper, not_tried_again, tried_again_when_told, tried_again,
]

if __name__ == "__main__":
    run(ANY_MODEL if ENGINE else ANY_MODEL + SCRIPTED)
