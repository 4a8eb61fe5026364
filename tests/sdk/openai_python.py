"""Conformance of a Waybill node with the official OpenAI client for Python, its asynchronous half included."""

import asyncio
import json

import openai
from conformance import (
    BRIEF, BROKEN, CACHED, CITIES, CITY, ENDING_MAX, ENGINE, GREET, GREETING, HELLO, INSTRUCTED, KEY, LONG_SYSTEM, MODEL, ODD,
    OUTPUT, PASSING, PNG, REFUSALS, REQUEST_ID, RETRY_AFTER, SAID_MAX, SCHEMA, SEE, SEEN, STRANGER, STUBBORN, TOTAL_INPUT,
    URL, WEATHER, Skip, check_instructed, check_told, degrees, each, raises, run, served_after_wait, speaks,
)
from pydantic import BaseModel, ConfigDict

OUTPUT_TOKENS_MAX = SAID_MAX if ENGINE else 48
# What a small model has to be told besides.
CALL = {"tool_choice": "required", "max_tokens": ENDING_MAX} if ENGINE else {}
NO_CALL = {"tool_choice": "none"} if ENGINE else {}
DOCUMENT = {"max_tokens": ENDING_MAX} if ENGINE else {}
SAID = {"max_output_tokens": SAID_MAX} if ENGINE else {}
ENDING = {"max_output_tokens": ENDING_MAX} if ENGINE else {}
RESPONSES_CALL = {"tool_choice": "required", **ENDING} if ENGINE else {}
FUNCTION = {"name": "weather", "description": "The weather of a city, now.", "parameters": CITY}
TOOL = {"type": "function", "function": FUNCTION}
FLAT_TOOL = {"type": "function", **FUNCTION, "strict": True}
JSON_SCHEMA = {"name": "greeting", "strict": True, "schema": SCHEMA}


def client(key=KEY, retries=0):
    return openai.OpenAI(base_url=f"{URL}/v1", api_key=key, max_retries=retries, timeout=120)


def said(prompt):
    return [{"role": "user", "content": prompt}]


def create(prompt=HELLO, retries=0, **options):
    settings = {"model": MODEL, "messages": said(prompt), "max_tokens": OUTPUT_TOKENS_MAX, "temperature": 0}
    return client(retries=retries).chat.completions.create(**{**settings, **options})


def check_usage(usage):
    assert usage.prompt_tokens > 0 and usage.completion_tokens > 0, usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens, usage
    if not ENGINE:
        assert (usage.prompt_tokens, usage.completion_tokens) == (TOTAL_INPUT, OUTPUT), usage
        assert usage.prompt_tokens_details.cached_tokens == CACHED, usage


def read(stream):
    """All chunks of a stream, its text and its finish reasons; the client raises when it is illegal."""
    chunks = list(stream)
    choices = [choice for chunk in chunks for choice in chunk.choices]
    text = "".join(choice.delta.content or "" for choice in choices)
    finishes = [choice.finish_reason for choice in choices if choice.finish_reason]
    return chunks, text, finishes


async def read_asynchronously(prompt, **options):
    """The same of a stream of the asynchronous client."""
    patient = openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0, timeout=120)
    async with patient:
        stream = await patient.chat.completions.create(model=MODEL, messages=said(prompt), stream=True, **options)
        return read([chunk async for chunk in stream])


def inputs(calls):
    return [json.loads(call.function.arguments) for call in calls]


class Greeting(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str
    count: int


def chat():
    answer = create()
    assert answer.object == "chat.completion", answer
    assert answer.id and answer.created > 0, answer
    assert answer.model == MODEL, answer.model
    assert len(answer.choices) == 1, answer
    assert answer.choices[0].message.role == "assistant", answer
    assert answer.choices[0].message.content, answer
    assert answer.choices[0].finish_reason in ("stop", "length"), answer
    check_usage(answer.usage)


def chat_headers():
    raw = client().chat.completions.with_raw_response.create(
        model=MODEL, messages=said(HELLO), max_tokens=OUTPUT_TOKENS_MAX
    )
    request_id = raw.headers["x-request-id"]
    assert REQUEST_ID.match(request_id), request_id
    assert raw.headers["request-id"] == request_id, raw.headers
    assert raw.headers["content-type"].startswith("application/json"), raw.headers


def chat_stream():
    chunks, text, finishes = read(create(stream=True))
    assert text, chunks
    assert finishes and finishes[-1] in ("stop", "length"), finishes
    assert len(finishes) == 1, finishes
    assert {chunk.model for chunk in chunks} == {MODEL}, chunks
    assert len({chunk.id for chunk in chunks}) == 1, chunks
    assert all(chunk.object == "chat.completion.chunk" for chunk in chunks), chunks
    assert all(chunk.choices for chunk in chunks), "a usage chunk came that nobody asked for"


def chat_stream_usage():
    chunks, text, finishes = read(create(stream=True, stream_options={"include_usage": True}))
    assert text and finishes, chunks
    last = chunks[-1]
    assert last.choices == [], last
    check_usage(last.usage)
    assert all(chunk.choices for chunk in chunks[:-1]), chunks


def chat_stream_closed_early():
    with create(stream=True) as stream:
        assert next(iter(stream)).object == "chat.completion.chunk"


def tools():
    message = create(WEATHER, tools=[TOOL], **CALL).choices[0].message
    assert inputs(message.tool_calls) == CITIES, message
    assert len({call.id for call in message.tool_calls}) == len(CITIES), message
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": degrees(given["city"])}
        for call, given in zip(message.tool_calls, inputs(message.tool_calls))
    ]
    turns = [*said(WEATHER), message.model_dump(exclude_none=True), *results]
    answer = create(tools=[TOOL], messages=turns, **NO_CALL)
    check_told(answer.choices[0].message.content)


def tools_stream():
    calls, finishes = {}, []
    for chunk in create(WEATHER, tools=[TOOL], stream=True, **CALL):
        for choice in chunk.choices:
            finishes += [choice.finish_reason] if choice.finish_reason else []
            for call in choice.delta.tool_calls or []:
                name, arguments = calls.get(call.index, ("", ""))
                calls[call.index] = (
                    name + (call.function.name or ""),
                    arguments + (call.function.arguments or ""),
                )
    assert finishes == ["tool_calls"], finishes
    assert {name for name, _ in calls.values()} == {"weather"}, calls
    assert [json.loads(arguments) for _, arguments in calls.values()] == CITIES, calls


def structured_output():
    options = {"response_format": {"type": "json_schema", "json_schema": JSON_SCHEMA}, **DOCUMENT}
    text = create(GREET, **options).choices[0].message.content
    assert json.loads(text) == GREETING, text


def models():
    listed = client().models.list()
    ids = [model.id for model in listed]
    assert MODEL in ids, ids
    assert len(ids) == len(set(ids)), ids
    assert all(model.object == "model" for model in listed), listed


def model():
    found = client().models.retrieve(MODEL)
    assert (found.id, found.object) == (MODEL, "model"), found


def model_with_slash():
    slashed = next((model.id for model in client().models.list() if "/" in model.id), None)
    if slashed is None:
        raise Skip("no model of this node has a slash in its id")
    assert client().models.retrieve(slashed).id == slashed


def expect(kind, status, act):
    error = raises(openai.APIStatusError, act)
    assert type(error) is kind, repr(error)
    assert error.status_code == status, error.status_code
    body = error.response.json()["error"]
    assert body["message"] and body["type"] and body["code"], body
    assert error.request_id == body["request_id"], (error.request_id, body)
    assert REQUEST_ID.match(error.request_id), error.request_id
    return body


def not_found():
    body = expect(openai.NotFoundError, 404, lambda: create(model="no-such-model"))
    assert body["code"] == "model_not_found", body
    assert "no-such-model" not in json.dumps(body), body


def model_not_found():
    expect(openai.NotFoundError, 404, lambda: client().models.retrieve("no/such-model"))


def unauthorized():
    def act():
        client(STRANGER).chat.completions.create(model=MODEL, messages=said(HELLO))

    body = expect(openai.AuthenticationError, 401, act)
    assert body["code"] == "invalid_api_key", body


def bad_request():
    expect(openai.BadRequestError, 400, lambda: create(messages=[]))


def bad_request_stream():
    expect(openai.BadRequestError, 400, lambda: create(messages=[], stream=True))


# From here on the upstream follows a script, which no real model does.


def helped(prompt, **options):
    with client().chat.completions.stream(model=MODEL, messages=said(prompt), **options) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion()


def parallel_tools_stream_helper():
    choice = helped(WEATHER, tools=[TOOL]).choices[0]
    assert inputs(choice.message.tool_calls) == CITIES, choice
    assert choice.finish_reason == "tool_calls", choice


def thinking():
    message = create("Please think.", reasoning_effort="low", max_tokens=4000, temperature=1).choices[0].message
    assert message.reasoning_content, message
    assert "hello" in message.content, message


def image():
    url = {"url": f"data:image/png;base64,{PNG}"}
    parts = [{"type": "text", "text": SEE}, {"type": "image_url", "image_url": url}]
    assert create(parts).choices[0].message.content == SEEN
    assert read(create(parts, stream=True))[1] == SEEN


def long_system():
    messages = [{"role": "system", "content": LONG_SYSTEM}, {"role": "developer", "content": BRIEF}, *said(INSTRUCTED)]
    check_instructed(create(messages=messages).choices[0].message.content, LONG_SYSTEM, BRIEF)
    check_instructed(read(create(messages=messages, stream=True))[1], LONG_SYSTEM, BRIEF)


def structured_output_helper():
    """The schema of a class of the caller's, whole and streamed."""
    settings = {"model": MODEL, "messages": said(GREET), "response_format": Greeting}
    assert client().chat.completions.parse(**settings).choices[0].message.parsed == Greeting(**GREETING)
    with client().chat.completions.stream(**settings) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.parsed == Greeting(**GREETING)


def check_odd(writing, chunks, text, finishes):
    assert text.startswith("hello from") and finishes == ["stop"], (writing, text, finishes)
    assert chunks[-1].usage.completion_tokens == OUTPUT, (writing, chunks[-1])


def odd_streams():
    for writing in ODD:
        check_odd(writing, *read(create(f"odd {writing}", stream=True, stream_options={"include_usage": True})))


def odd_streams_asynchronous():
    for writing in ODD:
        told = asyncio.run(read_asynchronously(f"odd {writing}", stream_options={"include_usage": True}))
        check_odd(writing, *told)


def odd_streams_helper():
    for writing in ODD:
        final = helped(f"odd {writing}", stream_options={"include_usage": True})
        assert final.choices[0].message.content.startswith("hello from"), (writing, final)
        assert final.choices[0].finish_reason == "stop" and final.usage.completion_tokens == OUTPUT, (writing, final)


def refusals():
    for stream in (False, True):
        def act(prompt):
            error = raises(openai.APIStatusError, lambda: create(prompt, stream=stream))
            assert error.status_code == REFUSALS[prompt], error
            if prompt == "refuse 429":
                assert error.response.headers["retry-after"] == RETRY_AFTER, error.response.headers

        each(REFUSALS, act, create)


def errors_in_a_good_status():
    """The first thing that comes is an error: it is one for the caller too, whatever the status was."""
    for stream in (False, True):
        each(["stumble"], lambda prompt: raises(openai.InternalServerError, lambda: create(prompt, stream=stream)), create)


def broken_answers():
    each(["cut text", "end text"], lambda prompt: raises(openai.InternalServerError, lambda: create(prompt)), create)


def broken_streams():
    def act(prompt):
        raises(openai.APIError, lambda: read(create(prompt, tools=[TOOL], stream=True)))

    each(BROKEN, act, create)


def broken_streams_asynchronous():
    def act(prompt):
        raises(openai.APIError, lambda: asyncio.run(read_asynchronously(prompt, tools=[TOOL])))

    each(BROKEN, act, create)


def broken_streams_helper():
    each(BROKEN, lambda prompt: raises(openai.APIError, lambda: helped(prompt, tools=[TOOL])), create)


def not_tried_again():
    """Every leg was tried: the node says so, and the client believes it."""
    each(STUBBORN, lambda prompt: raises(openai.APIStatusError, lambda: create(prompt, retries=2)), create)


def tried_again_when_told():
    for prompt in PASSING:
        answer = create(prompt, retries=2)
        assert answer.choices[0].message.content.startswith("hello from"), (prompt, answer)


def tried_again():
    def once():
        return create("refuse 500")

    answer = served_after_wait(openai.InternalServerError, once, lambda: create(retries=2))
    assert "hello" in answer.choices[0].message.content, answer


def respond(prompt=HELLO, **options):
    return client().responses.create(model=MODEL, input=prompt, store=False, **options)


def response_calls(answer):
    return [item for item in answer.output if item.type == "function_call"]


def response_results(calls):
    return [
        {"type": "function_call_output", "call_id": call.call_id, "output": degrees(json.loads(call.arguments)["city"])}
        for call in calls
    ]


def check_response_usage(usage):
    assert usage.input_tokens > 0 and usage.output_tokens > 0, usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens, usage
    if ENGINE:
        return
    assert (usage.input_tokens, usage.output_tokens) == (TOTAL_INPUT, OUTPUT), usage
    assert usage.input_tokens_details.cached_tokens == CACHED, usage


def responses():
    answer = respond(instructions="Be brief.", **SAID)
    assert answer.status in (("completed", "incomplete") if ENGINE else ("completed",)), answer
    assert speaks(answer.output_text), answer
    check_response_usage(answer.usage)


def responses_tools():
    answer = respond(WEATHER, tools=[FLAT_TOOL], **RESPONSES_CALL)
    calls = response_calls(answer)
    assert [json.loads(call.arguments) for call in calls] == CITIES, calls
    history = [item.model_dump(exclude_none=True) for item in answer.output]
    again = respond([*said(WEATHER), *history, *response_results(calls)], tools=[FLAT_TOOL], **NO_CALL, **SAID)
    check_told(again.output_text)


def responses_chain():
    """The next turn names the one before instead of repeating it."""
    first = client().responses.create(model=MODEL, input=WEATHER, tools=[FLAT_TOOL])
    results = response_results(response_calls(first))
    again = client().responses.create(model=MODEL, input=results, previous_response_id=first.id, tools=[FLAT_TOOL])
    check_told(again.output_text)
    assert client().responses.retrieve(again.id).output_text == again.output_text
    client().responses.delete(first.id)
    raises(openai.NotFoundError, lambda: client().responses.retrieve(first.id))


def responses_stream():
    events = list(respond(WEATHER, tools=[FLAT_TOOL], stream=True, **RESPONSES_CALL))
    assert [event.sequence_number for event in events] == list(range(len(events))), events
    assert events[0].type == "response.created" and events[-1].type == "response.completed", events
    done = [event.item for event in events if event.type == "response.output_item.done"]
    calls = [json.loads(item.arguments) for item in done if item.type == "function_call"]
    assert calls == CITIES, done
    check_response_usage(events[-1].response.usage)


def response_helped(prompt, **options):
    with client().responses.stream(model=MODEL, input=prompt, store=False, **options) as stream:
        for _ in stream:
            pass
        return stream.get_final_response()


def responses_stream_helper():
    final = response_helped(HELLO)
    assert "hello" in final.output_text, final


def check_odd_response(writing, response):
    assert response.status == "completed" and response.output_text.startswith("hello from"), (writing, response)
    check_response_usage(response.usage)


def responses_odd_streams():
    for writing in ODD:
        events = list(respond(f"odd {writing}", stream=True))
        assert events[-1].type == "response.completed", (writing, events)
        check_odd_response(writing, events[-1].response)


def responses_odd_streams_helper():
    for writing in ODD:
        check_odd_response(writing, response_helped(f"odd {writing}"))


def responses_format_helper():
    answer = client().responses.parse(model=MODEL, input=GREET, text_format=Greeting, store=False)
    assert answer.output_parsed == Greeting(**GREETING), answer
    assert response_helped(GREET, text_format=Greeting).output_parsed == Greeting(**GREETING)


def responses_long_system():
    check_instructed(respond(INSTRUCTED, instructions=LONG_SYSTEM).output_text, LONG_SYSTEM)
    turns = [{"role": "developer", "content": LONG_SYSTEM}, *said(INSTRUCTED)]
    check_instructed(response_helped(turns).output_text, LONG_SYSTEM)


def responses_format():
    answer = respond(GREET, text={"format": {"type": "json_schema", **JSON_SCHEMA}}, **ENDING)
    assert json.loads(answer.output_text) == GREETING, answer


def responses_image():
    parts = [
        {"type": "input_text", "text": SEE},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"},
    ]
    assert respond(said(parts)).output_text == SEEN
    assert response_helped(said(parts)).output_text == SEEN


def responses_refusals():
    def act(prompt):
        error = raises(openai.APIStatusError, lambda: respond(prompt, stream=True))
        assert error.status_code == REFUSALS[prompt], error

    each(REFUSALS, act, create)


def responses_broken_streams():
    def act(prompt):
        kinds = []
        try:
            kinds = [event.type for event in respond(prompt, tools=[FLAT_TOOL], stream=True)]
        except openai.APIError:
            return
        assert kinds[-1] == "response.failed", kinds

    each(BROKEN, act, create)


def responses_broken_streams_helper():
    def act(prompt):
        raises((openai.APIError, RuntimeError), lambda: response_helped(prompt, tools=[FLAT_TOOL]))

    each(BROKEN, act, create)


def completion(prompt, **options):
    return client().completions.create(model=MODEL, prompt=prompt, max_tokens=OUTPUT_TOKENS_MAX, **options)


def completions():
    answer = completion(HELLO)
    assert answer.choices[0].text.startswith("hello from") and answer.choices[0].finish_reason == "stop", answer
    check_usage(answer.usage)


def completions_odd_streams():
    for writing in ODD:
        chunks = list(completion(f"odd {writing}", stream=True, stream_options={"include_usage": True}))
        choices = [choice for chunk in chunks for choice in chunk.choices]
        text = "".join(choice.text for choice in choices)
        finishes = [choice.finish_reason for choice in choices if choice.finish_reason]
        check_odd(writing, chunks, text, finishes)


def completions_broken_streams():
    prompts = [prompt for prompt in BROKEN if prompt.endswith(("text", "late"))]
    each(prompts, lambda prompt: raises(openai.APIError, lambda: list(completion(prompt, stream=True))), create)


ANY_MODEL = [
    chat, chat_headers, chat_stream, chat_stream_usage, chat_stream_closed_early, tools, tools_stream, structured_output,
    models, model, model_with_slash, not_found, model_not_found, unauthorized, bad_request, bad_request_stream, responses,
    responses_tools, responses_stream, responses_format,
]
SCRIPTED = [
    parallel_tools_stream_helper, thinking, structured_output_helper, image, long_system, odd_streams,
    odd_streams_asynchronous, odd_streams_helper, refusals, errors_in_a_good_status, broken_answers, broken_streams,
    broken_streams_asynchronous, broken_streams_helper, responses_chain, responses_stream_helper, responses_odd_streams,
    responses_odd_streams_helper, responses_format_helper, responses_image, responses_long_system, responses_refusals,
    responses_broken_streams, responses_broken_streams_helper, completions, completions_odd_streams,
    completions_broken_streams, not_tried_again, tried_again_when_told, tried_again,
]

if __name__ == "__main__":
    run(ANY_MODEL if ENGINE else ANY_MODEL + SCRIPTED)
