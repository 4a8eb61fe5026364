//! Tests of the gate.

use schemas::catalog::{Origin, model_key};
use schemas::id::{KeyId, ModelName, TenantId};
use schemas::time::Timestamp;

use super::*;

pub(crate) fn model(change: impl FnOnce(&mut Model)) -> Model {
    let mut model = Model {
        id: ModelName::from("m"),
        name: "M".into(),
        aliases: vec![ModelName::from("org/m-latest")],
        position: 0,
        input_modalities: Modalities::TEXT,
        output_modalities: Modalities::TEXT,
        quantization: "".into(),
        context_length: 8_192,
        max_output_length: 4_096,
        supports_tools: false,
        supports_structured_output: false,
        embeds: false,
        supported_params: Vec::new(),
        required_role: Role::Free,
        tenants: None,
        pricing: Vec::new(),
        created_at: Timestamp::default(),
        routes: Vec::new(),
        origin: Origin::File,
        owner: schemas::catalog::operators(),
        router: None,
    };
    change(&mut model);
    model
}

fn catalog(model: &Model) -> Catalog {
    let mut catalog = Catalog::default();
    let value = serde_json::to_vec(model).expect("serialize");
    catalog
        .apply(1, &model_key(&model.id), Some(&value))
        .expect("apply");
    catalog
}

pub(crate) fn caller(change: impl FnOnce(&mut Key)) -> Caller {
    let mut key = Key {
        id: KeyId::from("k1"),
        name: "k1".into(),
        tenant: TenantId::from("acme"),
        user: None,
        role: Role::Free,
        models: None,
        limits: schemas::limit::limits::Limits::default(),
        output_default_max: None,
        expires_at: None,
        revoked: false,
        created_at: Timestamp::default(),
        origin: Origin::File,
        prefix: "".into(),
        reach: schemas::catalog::grant::Reach::Member,
        denied: Vec::new(),
        rotated_at: None,
        routing: None,
        granted: Some(Role::Operator),
        maker: None,
        seen_by: None,
    };
    change(&mut key);
    Caller { key: Arc::new(key) }
}

fn ask(model: &Model, caller: &Caller, body: &str) -> Result<(), Failure> {
    let skim = skim::skim_chat(body.as_bytes(), &skim::Limits::default()).expect("a good body");
    admit(&catalog(model), caller, (&skim, body.as_bytes()), Surface::Chat).map(drop)
}

const PLAIN: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;

#[test]
fn a_model_answers_to_its_name_and_its_aliases() {
    let aliased = r#"{"model":"org/m-latest","messages":[{"role":"user","content":"hi"}]}"#;

    assert_eq!(ask(&model(|_| {}), &caller(|_| {}), PLAIN), Ok(()));
    assert_eq!(ask(&model(|_| {}), &caller(|_| {}), aliased), Ok(()));
}

#[test]
fn unknown_hidden_and_forbidden_models_get_one_answer() {
    let acme = || caller(|_| {});
    let only = |name: &str| Some(vec![ModelName::from(name)]);
    let unknown = r#"{"model":"x","messages":[{"role":"user","content":"hi"}]}"#;
    let refused = Err(no_model());

    assert_eq!(ask(&model(|_| {}), &acme(), unknown), refused);
    assert_eq!(
        ask(&model(|model| model.required_role = Role::Pro), &acme(), PLAIN),
        refused
    );
    let others = model(|model| model.tenants = Some(vec![TenantId::from("umbrella")]));
    assert_eq!(ask(&others, &acme(), PLAIN), refused);
    assert_eq!(
        ask(&model(|_| {}), &caller(|key| key.models = only("other")), PLAIN),
        refused
    );
}

#[test]
fn roles_tenants_and_a_keys_own_list_open_the_gate() {
    let only = |name: &str| Some(vec![ModelName::from(name)]);
    let staff = model(|model| model.required_role = Role::Internal);
    let theirs = model(|model| model.tenants = Some(vec![TenantId::from("umbrella")]));

    assert_eq!(ask(&staff, &caller(|key| key.role = Role::Admin), PLAIN), Ok(()));
    assert_eq!(
        ask(&theirs, &caller(|key| key.role = Role::Operator), PLAIN),
        Ok(())
    );
    assert_eq!(
        ask(&model(|_| {}), &caller(|key| key.models = only("m")), PLAIN),
        Ok(())
    );
    assert_eq!(
        ask(
            &model(|_| {}),
            &caller(|key| key.models = only("org/m-latest")),
            PLAIN
        ),
        Ok(())
    );
}

#[test]
fn nobody_sees_what_is_open_to_all_and_nothing_else() {
    assert!(sees(None, &model(|_| {})));
    assert!(!sees(None, &model(|model| model.required_role = Role::Pro)));
    assert!(!sees(None, &model(|model| model.tenants = Some(Vec::new()))));
}

#[test]
fn tools_and_formats_need_a_model_that_takes_them() {
    let tools = r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function"}]}"#;
    let format = r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"response_format":{"type":"json_object"}}"#;
    let able = model(|model| {
        model.supports_tools = true;
        model.supports_structured_output = true;
    });
    let refusal = |body| {
        let failure = ask(&model(|_| {}), &caller(|_| {}), body).expect_err("refused");
        (failure.code, failure.param)
    };

    assert_eq!(
        refusal(tools),
        (FailureCode::UnsupportedParameter, Some("tools".into()))
    );
    assert_eq!(
        refusal(format),
        (FailureCode::UnsupportedParameter, Some("response_format".into()))
    );
    assert_eq!(ask(&able, &caller(|_| {}), tools), Ok(()));
    assert_eq!(ask(&able, &caller(|_| {}), format), Ok(()));
}

#[test]
fn a_parameter_is_refused_when_no_route_takes_it_and_effort_is_no_more_than_a_hint() {
    let body =
        r#"{"model":"m","top_k":5,"reasoning_effort":"low","messages":[{"role":"user","content":"hi"}]}"#;
    let route = |parameters: Parameters| Route {
        endpoint_id: schemas::id::EndpointId::from("m:o1"),
        upstream_model: "up".into(),
        priority: 0,
        weight_micro: 1_000_000,
        pool: schemas::id::PoolName::from("default"),
        context_length: 8_192,
        input_modalities: Modalities::TEXT,
        takes: Arc::new(schemas::parameter::Takes {
            parameters,
            ..schemas::parameter::Takes::default()
        }),
        price: None,
        origin: Origin::File,
        rates: None,
    };
    let of = |takes: &[Parameters]| {
        let routes = takes.iter().map(|parameters| route(*parameters)).collect();
        ask(&model(|model| model.routes = routes), &caller(|_| {}), body)
    };

    let refused = of(&[Parameters::TEMPERATURE, Parameters::STOP]).expect_err("refused");

    assert_eq!(
        (refused.code, refused.status, refused.param),
        (FailureCode::UnsupportedParameter, 400, Some("top_k".into()))
    );
    assert_eq!(of(&[Parameters::TEMPERATURE, Parameters::TOP_K]), Ok(()));
    assert_eq!(of(&[Parameters::ALL]), Ok(()));
}

#[test]
fn an_image_for_a_text_model_is_refused_before_any_upstream_sees_it() {
    let image = r#"{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:x"}}]}]}"#;
    let seeing = model(|model| model.input_modalities = Modalities::TEXT | Modalities::IMAGE);

    let failure = ask(&model(|_| {}), &caller(|_| {}), image).expect_err("refused");

    assert_eq!(
        (failure.code, failure.status),
        (FailureCode::UnsupportedModality, 400)
    );
    assert_eq!(failure.message, "Model 'm' does not support image input");
    assert_eq!(ask(&seeing, &caller(|_| {}), image), Ok(()));
}

#[test]
fn a_pin_is_heard_only_from_those_who_run_the_platform() {
    let pinned = |caller: &Caller| {
        let mut headers = HeaderMap::new();
        headers.insert("x-route-pin", http::HeaderValue::from_static("o2"));
        wishes(&headers, caller).pin
    };
    let of_default = caller(|key| {
        key.role = Role::Admin;
        key.tenant = TenantId::from("default");
    });

    assert_eq!(
        pinned(&caller(|key| key.role = Role::Operator)).as_deref(),
        Some("o2")
    );
    assert_eq!(pinned(&of_default).as_deref(), Some("o2"));
    assert_eq!(pinned(&caller(|key| key.role = Role::Admin)), None);
    assert_eq!(pinned(&caller(|_| {})), None);
}

#[test]
fn faults_of_a_body_are_told_without_repeating_it() {
    let malformed = |body: &str| {
        let problem = skim::skim_chat(body.as_bytes(), &skim::Limits::default()).expect_err("a bad body");
        malformed(&problem)
    };

    let broken = malformed("{\"model\": canary");
    let empty = malformed(r#"{"model":"m"}"#);

    assert_eq!((broken.code, broken.status), (FailureCode::InvalidJson, 400));
    assert!(!broken.message.contains("canary"));
    assert_eq!(
        (empty.code, empty.param),
        (FailureCode::InvalidRequest, Some("messages".into()))
    );
}
