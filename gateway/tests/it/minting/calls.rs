//! Calls that are drawn at random, and what becomes of the world by one that was let through.

use schemas::catalog::Role;
use serde_json::{Map, Value, json};

use super::model::{Credential, Kind, MODELS, NEVER, Names, Person, Who, World};
use super::{FAY, UNTIL, until};

/// The kinds of calls.
pub(super) const KINDS: [&str; 9] = [
    "mint", "rotate", "key", "revoke", "user", "member", "drop", "import", "rollback",
];
const ROLES: [Role; 5] = [Role::Free, Role::Pro, Role::Internal, Role::Admin, Role::Operator];
const PEOPLE: [Who; 5] = [
    ("acme", "ann"),
    ("acme", "bob"),
    FAY,
    ("acme", "new"),
    ("default", "opa"),
];

/// Numbers that look random and are the same each time.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn below(&mut self, n: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let z = z ^ (z >> 31);
        usize::try_from(z % u64::try_from(n.max(1)).expect("small")).expect("small")
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn yes(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}

/// A call.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) kind: &'static str,
    pub(super) line: String,
    pub(super) body: Value,
    /// The id of the key that it is about.
    pub(super) key: String,
    /// The member that it is about.
    pub(super) tenant: &'static str,
    pub(super) user: Option<&'static str>,
}

impl Call {
    pub(super) fn of(kind: &'static str, line: String, body: Value) -> Self {
        let named = |name: &str| body[name].as_str().map(str::to_owned);
        let tenant = if named("tenant").as_deref() == Some("default") {
            "default"
        } else {
            "acme"
        };
        let user = named("user").or_else(|| named("id"));
        let user = PEOPLE.iter().find(|(_, id)| Some(*id) == user.as_deref());
        Self {
            kind,
            line,
            body,
            key: String::new(),
            tenant,
            user: user.map(|(_, id)| *id),
        }
    }

    fn about(self, (tenant, user): Who) -> Self {
        Self {
            tenant,
            user: Some(user),
            ..self
        }
    }
}

fn names(dice: &mut Dice) -> Vec<&'static str> {
    MODELS
        .iter()
        .map(|(name, _)| *name)
        .filter(|_| !dice.yes(2))
        .collect()
}

/// A call that somebody might make with a credential.
pub(super) fn drawn(dice: &mut Dice, world: &World, by: usize) -> Call {
    match dice.below(14) {
        0..=3 => mint(dice, world, by),
        4 => of_key(dice, world, "rotate"),
        5 | 6 => of_key(dice, world, "key"),
        7 => of_key(dice, world, "revoke"),
        8 => {
            let (tenant, id) = dice.one(&PEOPLE);
            let body = json!({"tenant": tenant, "id": id, "role": dice.one(&ROLES)});
            Call::of("user", "POST /api/v1/users".to_owned(), body)
        }
        9 | 10 => member(dice),
        11 => {
            let who = if dice.yes(3) { dice.one(&PEOPLE) } else { FAY };
            let line = format!("DELETE /api/v1/users/{}/overlay?tenant={}", who.1, who.0);
            Call::of("drop", line, Value::Null).about(who)
        }
        12 if dice.yes(2) => {
            let to = 1 + dice.below(2);
            Call::of(
                "rollback",
                "POST /admin/config/rollback".to_owned(),
                json!({"to": to}),
            )
            .about(FAY)
        }
        12 => {
            let (tenant, user) = dice.one(&PEOPLE);
            let mut body = json!({"tenant": tenant, "user": user, "external_job_id": "job", "minutes": 60});
            if dice.yes(2) {
                body["allowed_models"] = json!(["m"]);
            }
            Call::of("grant", "POST /internal/agent-grants".to_owned(), body)
        }
        _ => {
            let who = dice.one(&PEOPLE);
            let mut body = json!({"role": dice.one(&ROLES)});
            if dice.yes(2) {
                body["disabled_models"] = json!(names(dice));
            }
            Call::of("import", "POST /admin/config/import".to_owned(), body).about(who)
        }
    }
}

/// Somebody who might be let through with a call that is for operators, most of the time.
pub(super) fn likely(dice: &mut Dice, world: &World, call: &Call) -> Option<usize> {
    if !["drop", "import", "rollback"].contains(&call.kind) || dice.yes(4) {
        return None;
    }
    let operates = |n: &usize| operates(world, &world.credentials[*n]);
    let operators: Vec<usize> = (0..world.credentials.len()).filter(operates).collect();
    Some(dice.one(&operators))
}

fn mint(dice: &mut Dice, world: &World, by: usize) -> Call {
    let own = world.credentials[by].tenant;
    let tenant = if dice.yes(4) { "acme" } else { own };
    let mut body = json!({"name": "k", "tenant": tenant, "role": dice.one(&ROLES)});
    if dice.yes(2) {
        body["user"] = json!(dice.one(&PEOPLE).1);
    }
    if dice.yes(3) {
        body["models"] = json!(names(dice));
    }
    if dice.yes(4) {
        body["expires_at"] = json!(UNTIL);
    }
    Call::of("mint", "POST /api/v1/tenant/api-keys".to_owned(), body)
}

/// Something with one of the keys that have an id.
fn of_key(dice: &mut Dice, world: &World, kind: &'static str) -> Call {
    let keys: Vec<&Credential> = world
        .credentials
        .iter()
        .filter(|held| held.kind == Kind::Key && !held.id.is_empty())
        .collect();
    let id = &keys[dice.below(keys.len())].id;
    let of = format!("/api/v1/tenant/api-keys/{id}");
    let (line, body) = match kind {
        "rotate" => (format!("POST {of}/rotate"), Value::Null),
        "revoke" => (format!("DELETE {of}"), Value::Null),
        _ => {
            let mut body = json!({});
            if dice.yes(2) {
                body["models"] = if dice.yes(2) {
                    Value::Null
                } else {
                    json!(names(dice))
                };
            }
            if dice.yes(2) {
                body["expires_at"] = if dice.yes(2) { Value::Null } else { json!(UNTIL) };
            }
            (format!("PATCH {of}"), body)
        }
    };
    Call {
        key: id.clone(),
        ..Call::of(kind, line, body)
    }
}

fn member(dice: &mut Dice) -> Call {
    let who = if dice.yes(3) { FAY } else { dice.one(&PEOPLE) };
    let mut body = Map::new();
    match dice.below(4) {
        0 => drop(body.insert("disabled".into(), json!(dice.yes(3)))),
        1 => drop(body.insert("disabled_models".into(), json!(names(dice)))),
        _ => drop(body.insert("role".into(), json!(dice.one(&ROLES)))),
    }
    let line = format!("PATCH /api/v1/users/{}?tenant={}", who.1, who.0);
    Call::of("member", line, Value::Object(body)).about(who)
}

/// A list of models as it was told.
fn list(value: &Value) -> Option<Names> {
    let told = value.as_array()?;
    let known = |told: &Value| MODELS.iter().map(|(name, _)| *name).find(|name| told == name);
    Some(told.iter().filter_map(known).collect())
}

fn role(value: &Value) -> Role {
    serde_json::from_value(value.clone()).unwrap_or_default()
}

/// When something ends, as it was told.
fn ends(value: &Value, otherwise: i64) -> i64 {
    if value.is_null() { otherwise } else { until() }
}

/// What becomes of the world by a call that was let through.
pub(super) fn take(world: &mut World, call: &Call, caller: &Credential, told: &Value) {
    match call.kind {
        "mint" => minted(world, call, caller, told),
        "grant" => granted(world, call, told),
        "rotate" => rotated(world, call, caller, told),
        "key" => {
            let denied = world.denied(caller);
            let Some(key) = key(world, &call.key) else { return };
            if let Some(models) = call.body.get("models") {
                key.models = list(models).or_else(|| caller.models.clone());
                key.denied = denied;
            }
            if let Some(ends_at) = call.body.get("expires_at") {
                key.until = ends(ends_at, caller.until);
            }
        }
        "revoke" => {
            if let Some(key) = key(world, &call.key) {
                key.is_revoked = true;
            }
        }
        "user" => {
            let role = role(&call.body["role"]);
            let person = Person {
                role: Some(role),
                granted: operates(world, caller).then_some(role),
                denied: world.denied(caller),
                ..Person::default()
            };
            world
                .people
                .insert((call.tenant, call.user.expect("a member")), person);
        }
        "member" => changed(world, call, caller),
        "drop" => {
            let person = world.people.get_mut(&(call.tenant, call.user.expect("a member")));
            if let Some(person) = person
                && let Some(filed) = person.of_file.take()
            {
                *person = *filed;
            }
        }
        "import" => {
            let record = &call.body["records"][0]["record"];
            let person = world.people.get_mut(&(call.tenant, call.user.expect("a member")));
            if let Some(person) = person.filter(|_| told["changed"] == 1) {
                person.role = Some(role(&record["role"]));
                person.denied = list(&record["disabled_models"]).unwrap_or_default();
            }
        }
        "rollback" => {
            let to = if call.body["to"] == 1 {
                Role::Admin
            } else {
                Role::Free
            };
            let person = world.people.get_mut(&FAY);
            if let Some(person) = person.filter(|_| told["changed"] == 1) {
                (person.role, person.granted) = (Some(to), Some(to));
            }
        }
        other => panic!("{other} is not known"),
    }
}

fn rotated(world: &mut World, call: &Call, caller: &Credential, told: &Value) {
    let maker = maker(caller);
    let Some(known) = key(world, &call.key) else {
        return;
    };
    let whose = (known.tenant, known.user);
    let seen_by = seen_by(world, whose, caller);
    let Some(key) = key(world, &call.key) else { return };
    key.seen_by = seen_by;
    told["key"]
        .as_str()
        .expect("a secret")
        .clone_into(&mut key.secret);
    key.maker = if key.user.is_none() { maker } else { None };
}

fn key<'w>(world: &'w mut World, id: &str) -> Option<&'w mut Credential> {
    world.credentials.iter_mut().find(|held| held.id == id)
}

/// As whom a caller makes what is nobody's.
fn maker(caller: &Credential) -> Option<Who> {
    caller.user.map(|user| (caller.tenant, user)).or(caller.maker)
}

/// What counts of a caller who is shown the secret of what is another's.
fn seen_by(
    world: &World,
    (tenant, user): (&'static str, Option<&'static str>),
    caller: &Credential,
) -> Option<Role> {
    let is_own = user.is_none() || (caller.tenant, caller.user) == (tenant, user);
    if is_own || operates(world, caller) {
        return caller.seen_by;
    }
    world.rights(caller).map(|rights| rights.counts)
}

fn operates(world: &World, caller: &Credential) -> bool {
    world
        .rights(caller)
        .is_some_and(|rights| rights.role == Role::Operator)
}

fn minted(world: &mut World, call: &Call, caller: &Credential, told: &Value) {
    let body = &call.body;
    let role = role(&body["role"]);
    let key = Credential {
        kind: Kind::Key,
        id: told["id"].as_str().expect("an id").to_owned(),
        secret: told["key"].as_str().expect("a secret").to_owned(),
        tenant: call.tenant,
        user: call.user,
        role,
        granted: operates(world, caller).then_some(role),
        models: list(&body["models"]).or_else(|| caller.models.clone()),
        denied: world.denied(caller),
        until: ends(&body["expires_at"], caller.until),
        maker: if call.user.is_none() { maker(caller) } else { None },
        seen_by: seen_by(world, (call.tenant, call.user), caller),
        is_revoked: false,
    };
    world.credentials.push(key);
}

fn granted(world: &mut World, call: &Call, told: &Value) {
    world.credentials.push(Credential {
        kind: Kind::Grant,
        id: String::new(),
        secret: told["token"].as_str().expect("a token").to_owned(),
        tenant: call.tenant,
        user: call.user,
        role: Role::Free,
        granted: None,
        models: list(&call.body["allowed_models"]),
        denied: Names::new(),
        until: NEVER,
        maker: None,
        seen_by: None,
        is_revoked: false,
    });
}

fn changed(world: &mut World, call: &Call, caller: &Credential) {
    let operates = operates(world, caller);
    let Some(person) = world.people.get_mut(&(call.tenant, call.user.expect("a member"))) else {
        return;
    };
    let before = person.clone();
    if let Some(said) = call.body.get("role") {
        person.role = Some(role(said));
        if operates {
            person.granted = person.role;
        }
    }
    if let Some(disabled) = call.body.get("disabled") {
        person.is_disabled = *disabled == true;
    }
    if let Some(models) = call.body.get("disabled_models") {
        person.denied = list(models).unwrap_or_default();
    }
    let is_disabled = person.is_disabled;
    if *person != before && before.is_as_filed {
        person.is_as_filed = false;
        person.of_file = Some(Box::new(before));
    }
    // Whoever is disabled is signed out.
    let of_him = |held: &&mut Credential| {
        held.kind == Kind::Session && (held.tenant, held.user) == (call.tenant, call.user)
    };
    for session in world.credentials.iter_mut().filter(of_him) {
        session.is_revoked |= is_disabled;
    }
}
