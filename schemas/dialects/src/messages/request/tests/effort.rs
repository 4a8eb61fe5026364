//! How much an upstream of Messages is asked to think.

use serde_json::{Value, json};

use super::encoding::{call, hello, plain, raw, refused, result, said, sent, sent_to, thought, tool};
use super::*;
use crate::superset::request::Reasoning;

#[test]
fn effort_takes_the_form_that_the_model_knows() {
    let thinking = |model: &str, effort, max_tokens| {
        let (body, _) = sent_to(
            model,
            &Conversation {
                reasoning: Reasoning {
                    effort: Some(effort),
                    shown: None,
                },
                max_tokens,
                ..hello()
            },
        );
        (
            body["thinking"].clone(),
            body["output_config"]["effort"].clone(),
            body["max_tokens"].clone(),
        )
    };
    let budget = |tokens: u64| json!({"type":"enabled","budget_tokens":tokens});
    let adaptive = json!({"type":"adaptive"});
    let old = "claude-haiku-4-5";

    assert_eq!(
        thinking(old, Effort::Low, None),
        (budget(1024), Value::Null, json!(4096))
    );
    assert_eq!(
        thinking(old, Effort::High, None),
        (budget(16_384), Value::Null, json!(17_408))
    );
    assert_eq!(
        thinking(old, Effort::High, Some(4096)),
        (budget(3072), Value::Null, json!(4096))
    );
    assert_eq!(
        thinking(old, Effort::Budget(31_999), Some(32_000)),
        (budget(31_999), Value::Null, json!(32_000))
    );
    assert_eq!(
        thinking(old, Effort::High, Some(100)),
        (Value::Null, Value::Null, json!(100))
    );
    assert_eq!(thinking(old, Effort::Off, None).0, json!({"type":"disabled"}));
    assert_eq!(thinking(old, Effort::Adaptive, None).0, Value::Null);
    let new = "claude-opus-4-8";
    assert_eq!(
        thinking(new, Effort::Minimal, None),
        (adaptive.clone(), json!("low"), json!(4096))
    );
    assert_eq!(thinking(new, Effort::ExtraHigh, None).1, "xhigh");
    assert_eq!(thinking("claude-opus-4-6", Effort::ExtraHigh, None).1, "high");
    assert_eq!(
        thinking(new, Effort::Budget(8000), None),
        (adaptive.clone(), json!("medium"), json!(4096))
    );
    assert_eq!(
        thinking(new, Effort::Adaptive, None),
        (adaptive, Value::Null, json!(4096))
    );
}

#[test]
fn a_model_does_not_think_where_the_provider_would_refuse_it() {
    let asked = Conversation {
        reasoning: Reasoning {
            effort: Some(Effort::Low),
            shown: None,
        },
        tools: vec![tool("look", Input::Schema(None))],
        ..hello()
    };
    let forced = Conversation {
        tool_choice: Some(ToolChoice::Required),
        ..asked.clone()
    };
    let after = |parts: Vec<Part>| Conversation {
        turns: vec![
            said(Role::User, vec![plain("a")]),
            said(Role::Assistant, parts),
            said(Role::Tool, vec![result("t1", "x")]),
        ],
        ..asked.clone()
    };
    let proved = after(vec![thought("hm", ProofMaker::Anthropic), call("t1", "{}")]);
    let foreign = after(vec![thought("hm", ProofMaker::Gemini), call("t1", "{}")]);

    for (conversation, thinks) in [
        (&asked, true),
        (&proved, true),
        (&forced, false),
        (&foreign, false),
    ] {
        let (body, encoded) = sent(conversation);
        let expected = if thinks { "enabled" } else { "disabled" };
        assert_eq!(body["thinking"]["type"], expected);
        assert_eq!(encoded.dropped.contains(&"reasoning_effort".into()), !thinks);
    }
    assert_eq!(
        sent(&proved).0["messages"][1]["content"][0],
        json!({"type":"thinking","thinking":"hm","signature":"c2ln"})
    );
    assert_eq!(sent(&foreign).0["messages"][1]["content"][0]["type"], "tool_use");
    let cool = Conversation {
        sampling: Sampling {
            temperature: Some(raw("0.2")),
            ..Sampling::default()
        },
        ..asked
    };
    assert_eq!(refused(&cool), "temperature");
}

#[test]
fn neither_an_answer_nor_its_thoughts_are_longer_than_the_model_answers() {
    let limited = |most: u64, effort, max_tokens, drop_params| {
        let conversation = Conversation {
            reasoning: Reasoning { effort, shown: None },
            max_tokens,
            ..hello()
        };
        let target = Target {
            model: "claude-haiku-4-5",
            profile: &crate::profile::DEFAULT,
            efforts: &[],
            max_tokens_default: most,
            max_tokens_limit: Some(most),
            drop_params,
        };
        encode(&conversation, &target).map(|encoded| {
            let body: Value = serde_json::from_slice(&encoded.body).expect("JSON");
            let budget = body["thinking"]["budget_tokens"].as_u64();
            (body["max_tokens"].as_u64(), budget, encoded.dropped.join(","))
        })
    };
    let sent = |max_tokens, budget, dropped: &str| Ok((Some(max_tokens), budget, dropped.to_owned()));

    assert_eq!(
        limited(8192, Some(Effort::High), None, false),
        sent(8192, Some(7168), "")
    );
    assert_eq!(
        limited(2000, Some(Effort::High), None, false),
        sent(2000, None, "reasoning_effort")
    );
    assert_eq!(limited(8192, None, Some(8192), false), sent(8192, None, ""));
    let refused = limited(8192, None, Some(8193), false).expect_err("refused");
    assert_eq!(refused.param, "max_tokens");
    assert_eq!(
        limited(8192, None, Some(8193), true),
        sent(8192, None, "max_tokens")
    );
}
