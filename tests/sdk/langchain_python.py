"""Conformance of a Waybill node with LangChain for Python, over its packages for OpenAI (chat and Responses) and for
Anthropic."""

import os

os.environ["LANGSMITH_TRACING"] = "false"

import anthropic
import openai
from conformance import CITIES, KEY, LONG_SYSTEM, MODEL, PNG, SCHEMA, URL, WEATHER, raises, run
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

HELLO = "Say hello in one short sentence."
FAILURES = (openai.APIError, anthropic.APIError, ValueError, RuntimeError)
SETTINGS = {"model": MODEL, "max_retries": 0, "timeout": 60}


@tool
def weather(city: str) -> str:
    """The weather of a city, now."""
    return f"4 degrees in {city}"


def chat():
    return ChatOpenAI(base_url=f"{URL}/v1", api_key=KEY, **SETTINGS)


def responses():
    return ChatOpenAI(base_url=f"{URL}/v1", api_key=KEY, use_responses_api=True, **SETTINGS)


def messages():
    return ChatAnthropic(base_url=URL, api_key=KEY, max_tokens=2000, **SETTINGS)


def text_of(answer):
    return answer.text if isinstance(answer.text, str) else answer.text()


def invoke(model):
    answer = model.invoke(HELLO)
    assert "hello" in text_of(answer), answer
    assert answer.usage_metadata["output_tokens"] > 0, answer


def stream(model):
    whole = None
    for chunk in model.stream(HELLO):
        whole = chunk if whole is None else whole + chunk
    assert "hello" in text_of(whole), whole


def tools(model):
    bound = model.bind_tools([weather])
    first = bound.invoke(WEATHER)
    assert [call["args"] for call in first.tool_calls] == [{"city": city} for city in CITIES], first
    results = [ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"]) for call in first.tool_calls]
    assert "hello" in text_of(bound.invoke([HumanMessage(WEATHER), first, *results]))


def tools_stream(model):
    whole = None
    for chunk in model.bind_tools([weather]).stream(WEATHER):
        whole = chunk if whole is None else whole + chunk
    assert [call["args"] for call in whole.tool_calls] == [{"city": city} for city in CITIES], whole


def structured_output(model):
    schema = {**SCHEMA, "title": "greeting", "description": "A greeting."}
    answer = model.with_structured_output(schema, method="json_schema").invoke("Greet me as JSON.")
    assert answer == {"text": "hello", "count": 1}, answer


def image(model):
    part = {"type": "image", "base64": PNG, "mime_type": "image/png"}
    assert text_of(model.invoke([HumanMessage([{"type": "text", "text": "What is this?"}, part])]))


def long_system(model):
    assert text_of(model.invoke([SystemMessage(LONG_SYSTEM), HumanMessage(HELLO)]))


def overloaded(model):
    raises(FAILURES, lambda: model.invoke("overload"))


def cut_stream(model):
    for prompt in ("cut", "break"):
        def act():
            whole = None
            for chunk in model.stream(prompt):
                whole = chunk if whole is None else whole + chunk
            status = whole.response_metadata.get("status")
            if status == "failed":
                raise ValueError("the answer says that it failed")

        raises(FAILURES, act)


def named(case, over):
    def bound():
        case(over())

    bound.__name__ = f"{over.__name__}_{case.__name__}"
    return bound


if __name__ == "__main__":
    cases = [invoke, stream, tools, tools_stream, structured_output, image, long_system, overloaded, cut_stream]
    run([named(case, over) for over in (chat, responses, messages) for case in cases])
