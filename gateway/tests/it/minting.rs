//! Nobody comes to more than he had, unless by somebody who has it: random calls of the management API by everybody who
//! has a credential, against a model of rights that is written apart. After each call that was let through, what every
//! credential is worth is computed by the model, held against what the gateway lets it do, and no credential may be worth
//! more than it was and than who called has.

use std::collections::BTreeMap;
use std::sync::Arc;

use bus::revisions::Revisions;
use bus::{Expected, Kv as _};
use schemas::catalog::user::{User, user_key};
use schemas::catalog::{Origin, Role};
use schemas::configuration::{Cause, RecordChange, Revision};
use schemas::id::{NodeId, TenantId, UserId};
use schemas::secret::Secret;
use schemas::subject::CATALOG_BUCKET;
use schemas::time::Timestamp;
use serde_json::{Map, Value, json};

use crate::scene::{ADMIN, Answer, OPERATOR, Scene};
use crate::sign_in::settings;

mod calls;
mod model;

use calls::{Call, Dice};
use model::{Credential, Kind, MODELS, NEVER, Person, Rights, Rule, World};

const DISPATCH: &str = "the token of whoever hands out grants";
const PASSWORD: &str = "correct horse battery 1";
/// When credentials end that do.
const UNTIL: &str = "2100-01-01T00:00:00Z";
/// The member whom a file has.
const FAY: (&str, &str) = ("acme", "fay");

/// Calls that are told of where something is wrong.
const LAST: usize = 15;

/// What a run did, by kind of call: let through, and refused.
type Counts = BTreeMap<&'static str, (u32, u32)>;

/// A gateway, and what the model knows of it.
struct Run {
    scene: Scene,
    world: World,
    dice: Dice,
    counts: Counts,
    /// What was let through, for whoever has to find out why.
    done: Vec<String>,
}

fn until() -> i64 {
    let until: Timestamp = serde_json::from_value(json!(UNTIL)).expect("a time");
    until.micros()
}

/// Whose credential it is, in short.
fn who(held: &Credential) -> String {
    format!(
        "{:?} {}/{} {:?} of {:?}",
        held.kind, held.tenant, held.id, held.role, held.user
    )
}

/// A key that nobody made over the API.
fn of_start(secret: &str, tenant: &'static str, role: Role) -> Credential {
    Credential {
        kind: Kind::Key,
        id: String::new(),
        secret: secret.to_owned(),
        tenant,
        user: None,
        role,
        granted: Some(role),
        models: None,
        denied: model::Names::new(),
        until: NEVER,
        maker: None,
        seen_by: None,
        is_revoked: false,
    }
}

impl Run {
    /// A deployment with members of all kinds, and credentials that are narrower than their roles.
    async fn new(seed: u64, without: Rule) -> Self {
        let scene = Scene::with(|config| {
            settings(config);
            config.grant_dispatch_token = Some(Secret::new(DISPATCH.to_owned()));
        })
        .await;
        let was = filed(&scene).await;
        let as_filed = Person {
            role: Some(Role::Admin),
            granted: Some(Role::Admin),
            is_as_filed: true,
            ..Person::default()
        };
        let credentials = vec![
            of_start(OPERATOR, "default", Role::Operator),
            of_start(ADMIN, "acme", Role::Admin),
        ];
        let mut run = Self {
            scene,
            world: World {
                people: BTreeMap::from([(FAY, as_filed)]),
                credentials,
                without,
            },
            dice: Dice(seed),
            counts: Counts::new(),
            done: Vec::new(),
        };
        for (tenant, id, role, password) in [
            ("acme", "ann", "admin", Some(PASSWORD)),
            ("acme", "bob", "internal", None),
            ("default", "opa", "operator", None),
        ] {
            let body = json!({"tenant": tenant, "id": id, "role": role, "email": format!("{id}@example.com"), "password": password});
            run.must(Call::of("user", "POST /api/v1/users".to_owned(), body))
                .await;
        }
        let login = json!({"email": "ann@example.com", "password": PASSWORD});
        let session = run
            .scene
            .within("POST /auth/login", &[], &login.to_string())
            .await;
        run.world.credentials.push(Credential {
            kind: Kind::Session,
            user: Some("ann"),
            granted: None,
            ..of_start(
                session.json()["access_token"].as_str().expect("a token"),
                "acme",
                Role::Operator,
            )
        });
        for body in [
            json!({"name": "narrow", "tenant": "default", "role": "operator", "models": ["m"]}),
            json!({"name": "short", "tenant": "default", "role": "operator", "expires_at": UNTIL}),
            json!({"name": "opa's", "tenant": "default", "user": "opa", "role": "operator"}),
            json!({"name": "fay's", "tenant": "acme", "user": "fay", "role": "admin"}),
            json!({"name": "bob's", "tenant": "acme", "user": "bob", "role": "internal"}),
            json!({"name": "narrow", "tenant": "acme", "role": "admin", "models": ["m"]}),
        ] {
            run.must(Call::of("mint", "POST /api/v1/tenant/api-keys".to_owned(), body))
                .await;
        }
        say(&run.scene, &fay(), &was).await;
        let lowered = run.world.people.get_mut(&FAY).expect("fay");
        (lowered.role, lowered.granted) = (Some(Role::Free), Some(Role::Free));
        run
    }

    /// A call of the operator's that has to be let through.
    async fn must(&mut self, call: Call) {
        let told = self.make(&call, 0).await;
        let told = told.unwrap_or_else(|problem| panic!("{problem}"));
        assert!(told.is_some(), "{call:?} was refused");
    }

    /// Makes a call with a credential and judges what came of it. `Some` tells the answer of one that was let through.
    async fn make(&mut self, call: &Call, by: usize) -> Result<Option<Value>, String> {
        let caller = self.world.credentials[by].clone();
        let secret = if call.kind == "grant" {
            DISPATCH
        } else {
            &caller.secret
        };
        let before: Vec<Option<Rights>> = self.worth();
        let had = match call.kind {
            // Whoever hands out grants gives what their owners have.
            "grant" => self.owner(call),
            _ => before[by].clone(),
        };
        let body = if call.body.is_null() {
            String::new()
        } else {
            call.body.to_string()
        };
        let bearer = format!("Bearer {secret}");
        let answer = self
            .scene
            .within(&call.line, &[("authorization", &bearer)], &body)
            .await;
        let count = self.counts.entry(call.kind).or_default();
        if answer.status >= 500 {
            return Err(format!("{call:?}: {answer:?}"));
        }
        if answer.status >= 300 {
            count.1 += 1;
            return Ok(None);
        }
        let had = had.ok_or_else(|| format!("{call:?} by {caller:?}, which is refused: {answer:?}"))?;
        count.0 += 1;
        let told = answer.json();
        self.done
            .push(format!("{} {} by {}", call.line, call.body, who(&caller)));
        calls::take(&mut self.world, call, &caller, &told);
        for (n, after) in self.worth().iter().enumerate() {
            let before = before.get(n).and_then(Option::as_ref);
            if let Some(what) = model::beyond(before, after.as_ref(), &had) {
                let whose = &self.world.credentials[n];
                return Err(format!(
                    "{call:?} by {caller:?} gave {whose:?} {what}; before {before:?}"
                ));
            }
        }
        Ok(Some(told))
    }

    fn worth(&self) -> Vec<Option<Rights>> {
        let all = self.world.credentials.iter();
        all.map(|held| self.world.rights(held)).collect()
    }

    /// Holds a credential's worth against what the gateway lets it do.
    async fn look(&self, n: usize) -> Result<(), String> {
        let held = &self.world.credentials[n];
        let expected = self.world.rights(held);
        let observed = observed(&self.scene, held).await;
        let agrees = match (&expected, &observed) {
            (None, None) => true,
            (Some(expected), Some((role, models))) => {
                role.is_none_or(|role| role == expected.role) && *models == expected.models
            }
            _ => false,
        };
        if agrees {
            Ok(())
        } else {
            Err(format!(
                "{held:?} is worth {observed:?}, by the model {expected:?}"
            ))
        }
    }

    /// So many random calls.
    async fn go(&mut self, calls: usize) -> Result<(), String> {
        for number in 0..calls {
            let by = self.dice.below(self.world.credentials.len());
            let call = calls::drawn(&mut self.dice, &self.world, by);
            let by = calls::likely(&mut self.dice, &self.world, &call).unwrap_or(by);
            let known = self.world.credentials.len();
            if call.kind == "import" {
                self.import(&call, by).await?;
            } else {
                self.make(&call, by).await?;
            }
            for n in known..self.world.credentials.len() {
                self.look(n).await?;
            }
            let all = number % 8 == 7;
            for n in 0..self.world.credentials.len() {
                if all || self.dice.below(8) == 0 {
                    self.look(n)
                        .await
                        .map_err(|problem| format!("after {call:?} by {by}: {problem}"))?;
                }
            }
        }
        Ok(())
    }

    /// What the owner of a grant that is asked for has.
    fn owner(&self, call: &Call) -> Option<Rights> {
        let owner = Credential {
            kind: Kind::Grant,
            user: call.user,
            granted: None,
            ..of_start("", call.tenant, Role::Operator)
        };
        self.world.rights(&owner)
    }

    /// Imports the record of a member with something else in it.
    async fn import(&mut self, call: &Call, by: usize) -> Result<(), String> {
        let bearer = format!("Bearer {OPERATOR}");
        let exported = self
            .scene
            .within("GET /admin/config/export", &[("authorization", &bearer)], "")
            .await;
        let place = user_key(
            &TenantId::from(call.tenant),
            &UserId::from(call.user.unwrap_or_default()),
        );
        let exported = exported.json();
        let mut records = exported["records"].as_array().into_iter().flatten();
        let Some(found) = records.find(|one| one["key"] == *place) else {
            return Ok(());
        };
        let mut record: Map<String, Value> = found["record"].as_object().cloned().expect("an object");
        for (name, value) in call.body.as_object().into_iter().flatten() {
            if value.as_array().is_some_and(Vec::is_empty) {
                record.remove(name);
            } else {
                record.insert(name.clone(), value.clone());
            }
        }
        let whole = Call {
            body: json!({"records": [{"key": place, "record": record}]}),
            ..call.clone()
        };
        self.make(&whole, by).await.map(drop)
    }
}

/// What a credential can do: its role, where it can ask for it, and the models that it may use.
async fn observed(scene: &Scene, held: &Credential) -> Option<(Option<Role>, model::Names)> {
    let bearer = format!("Bearer {}", held.secret);
    let headers = [("authorization", &*bearer)];
    let mut role = None;
    if held.kind != Kind::Grant {
        let me = scene.within("GET /user/me", &headers, "").await;
        if me.status == 401 {
            return None;
        }
        role = Some(serde_json::from_value(me.json()["role"].clone()).expect("a role"));
    }
    let mut models = model::Names::new();
    for (name, _) in MODELS {
        let body = json!({"model": name, "messages": [{"role": "user", "content": "hi"}]});
        let line = "POST /v1/messages/count_tokens";
        let answer: Answer = scene.within(line, &headers, &body.to_string()).await;
        match answer.status {
            200 => drop(models.insert(name)),
            404 => {}
            401 => return None,
            _ => panic!("{answer:?}"),
        }
    }
    Some((role, models))
}

/// Fay as files have her: an administrator, who will be nobody in particular. Gives what the file will say.
async fn filed(scene: &Scene) -> Value {
    let was = |role: Role| {
        let user = User {
            role: Some(role),
            granted: Some(role),
            ..User::new(TenantId::from(FAY.0), UserId::from(FAY.1), Origin::File)
        };
        serde_json::to_value(user).expect("JSON")
    };
    let (before, now) = (was(Role::Admin), was(Role::Free));
    say(scene, &fay(), &before).await;
    revised(scene, (&fay(), &before, &now)).await;
    now
}

/// Has files be said to have changed a record: revision 1 is before that, revision 2 after it.
pub(crate) async fn revised(scene: &Scene, (key, before, now): (&str, &Value, &Value)) {
    let change = RecordChange {
        key: key.to_owned(),
        from: Some(before.clone()),
        to: Some(now.clone()),
    };
    let revisions = Revisions::new(scene.bus.clone());
    for changes in [vec![], vec![change]] {
        let told = Revision {
            number: 0,
            at: Timestamp::default(),
            node: NodeId::from("n1"),
            cause: Cause::Start,
            actor: None,
            set: Arc::from("set"),
            files: Vec::new(),
            changed: 0,
            pieces: 0,
            catalog_revision: None,
        };
        let begun = revisions.begin(told, &changes).await.expect("begin");
        revisions.finish(begun, 1).await.expect("finish");
    }
}

fn fay() -> String {
    user_key(&TenantId::from(FAY.0), &UserId::from(FAY.1))
}

/// Has a file say something of a member, and waits until it counts.
pub(crate) async fn say(scene: &Scene, key: &str, record: &Value) {
    let value = record.to_string();
    let put = scene.bus.put(CATALOG_BUCKET, key, value.into(), Expected::Any);
    put.await.expect("put");
    let bearer = format!("Bearer {OPERATOR}");
    let text = |name: &str| record[name].as_str().expect("a text").to_owned();
    let line = format!("GET /api/v1/users/{}?tenant={}", text("id"), text("tenant"));
    for _ in 0..2_000 {
        let told = scene.within(&line, &[("authorization", &bearer)], "").await;
        if told.status == 200 && told.json()["role"] == record["role"] {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("the file did not count");
}

async fn ran(seed: u64, calls: usize, without: Rule) -> Result<Counts, String> {
    let mut run = Run::new(seed, without).await;
    let went = run.go(calls).await;
    let last = run.done.len().saturating_sub(LAST);
    went.map_err(|problem| {
        let (done, people) = (run.done[last..].join("\n"), &run.world.people);
        format!("seed {seed}: {problem}\n{people:?}\nthe last calls:\n{done}")
    })?;
    Ok(run.counts)
}

#[tokio::test]
async fn nobody_comes_to_more_than_he_had_unless_by_somebody_who_has_it() {
    let mut counts = Counts::new();
    for seed in 1..=4 {
        let of_run = ran(seed, 150, Rule::None)
            .await
            .unwrap_or_else(|problem| panic!("{problem}"));
        for (kind, (through, refused)) in of_run {
            let count = counts.entry(kind).or_default();
            (count.0, count.1) = (count.0 + through, count.1 + refused);
        }
    }
    // Each kind of call was let through, and each that can be refused for what somebody is was.
    for kind in calls::KINDS {
        let (through, refused) = counts.get(kind).copied().unwrap_or_default();
        assert!(through > 0 && refused > 0, "{kind}: {counts:?}");
    }
}

#[tokio::test]
async fn a_rule_that_the_model_lacks_is_found() {
    for rule in [Rule::Members, Rule::Makers, Rule::Grants, Rule::Disabled] {
        let mut found = false;
        for seed in 1..=6 {
            found = found || ran(seed, 150, rule).await.is_err();
        }
        assert!(found, "{rule:?} is missing, and nothing was found");
    }
}
