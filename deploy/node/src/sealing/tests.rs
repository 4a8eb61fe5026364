//! Tests of where keys for sealing come from, and of what references of endpoints can reach.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::command_line::Flags;
use crate::config;

const MASTER: &str = "BQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQU=";

fn loaded(data_dir: &Path, yaml: &str, variables: &[(&str, &str)]) -> Config {
    let path = data_dir.join("waybill.yaml");
    std::fs::write(&path, yaml).expect("a file");
    let flags = Flags {
        config: Some(path),
        data_dir: Some(data_dir.to_owned()),
        ..Flags::default()
    };
    config::load(&flags, &Environment::from_pairs(variables.iter().copied())).expect("a configuration")
}

fn sealing(config: &Config, data_dir: &Path) -> Sealing {
    Sealing::of(config, data_dir, &Mint::new().expect("randomness")).expect("keys")
}

#[test]
fn a_node_alone_makes_itself_one_key_that_only_its_owner_may_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = loaded(dir.path(), "", &[]);

    let (first, second) = (sealing(&config, dir.path()), sealing(&config, dir.path()));

    assert!(first.public.is_some() && first.public == second.public);
    assert_eq!((first.private.len(), second.private.len()), (1, 1));
    let file = dir.path().join("secrets/master_key");
    let mode = std::fs::metadata(&file).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let told = public_key(&config).expect("a key");
    assert_eq!(
        Some(told.trim().to_owned()),
        first.public.map(|key| key.to_string())
    );
    std::fs::write(&file, "damaged").expect("write");
    let damaged = Sealing::of(&config, dir.path(), &Mint::new().expect("randomness"));
    assert!(damaged.is_err(), "another key would open nothing");
}

#[test]
fn in_a_cluster_keys_are_given_and_only_routers_hold_what_opens() {
    let dir = tempfile::tempdir().expect("a directory");
    let (nats, master) = (("NATS_URL", "nats://h"), ("WAYBILL_MASTER_KEY", MASTER));
    let public = PrivateKey::of_master(&Secret::new([5; 32])).public().clone();
    let text = public.to_string();
    let of = |roles: &str, variables: &[(&str, &str)]| {
        let config = loaded(dir.path(), &format!("roles: [{roles}]\n"), variables);
        let keys = sealing(&config, dir.path());
        (keys.public, keys.private.len())
    };

    assert_eq!(of("router", &[nats, master]), (Some(public.clone()), 1));
    assert_eq!(of("gateway, router", &[nats, master]), (Some(public.clone()), 1));
    assert_eq!(of("gateway", &[nats, master]), (Some(public.clone()), 0));
    assert_eq!(
        of("gateway", &[nats, ("WAYBILL_PUBLIC_KEY", &text)]),
        (Some(public), 0)
    );
    assert_eq!(of("gateway, router", &[nats]), (None, 0));
    assert!(!dir.path().join("secrets/master_key").exists());
    assert!(public_key(&loaded(dir.path(), "", &[nats])).is_err());
}

/// Files and links in `other`, some of which lead out of it.
fn furnish(dir: &tempfile::TempDir, other: &tempfile::TempDir, elsewhere: &tempfile::TempDir) {
    std::fs::write(elsewhere.path().join("key"), "sk-of-somebody").expect("write");
    std::os::unix::fs::symlink(elsewhere.path(), other.path().join("way")).expect("link");
    std::os::unix::fs::symlink(elsewhere.path().join("key"), other.path().join("out")).expect("link");
    std::fs::create_dir(other.path().join("below")).expect("a directory");
    std::os::unix::fs::symlink("../key", other.path().join("below/near")).expect("link");
    std::fs::write(other.path().join("key"), "sk-of-a-file\n").expect("write");
    let (empty, large) = (other.path().join("empty"), other.path().join("large"));
    std::fs::write(&empty, "\n").expect("write");
    std::fs::write(&large, vec![b'x'; SECRET_BYTES_MAX + 1]).expect("write");
    std::os::unix::fs::symlink(dir.path().join("secrets/master_key"), other.path().join("link"))
        .expect("link");
}

#[test]
fn references_reach_what_is_an_upstreams_and_nothing_of_the_node() {
    let (dir, other, elsewhere) = (
        tempfile::tempdir().expect("one"),
        tempfile::tempdir().expect("two"),
        tempfile::tempdir().expect("three"),
    );
    furnish(&dir, &other, &elsewhere);
    let secret = other.path().join("key");
    let config = loaded(
        dir.path(),
        &format!("credentials_dir: {}", other.path().display()),
        &[
            ("UPSTREAM_KEY", " sk-of-a-variable "),
            ("ADMIN_TOKEN", "own"),
            ("API_KEY_SECRET", "own"),
            ("WAYBILL_MASTER_KEY", MASTER),
            ("DATABASE_URL", "postgres://own"),
        ],
    );
    std::fs::create_dir_all(dir.path().join("secrets")).expect("a directory");
    std::fs::write(dir.path().join("secrets/master_key"), MASTER).expect("write");
    let machine = machine(&config);
    let found = |reference: String| machine(&CredentialRef(reference)).map(|secret| secret.reveal().clone());

    assert_eq!(
        found("env:UPSTREAM_KEY".into()).as_deref(),
        Some("sk-of-a-variable")
    );
    assert_eq!(
        found(format!("file:{}", secret.display())).as_deref(),
        Some("sk-of-a-file")
    );
    let within = |name: &str| format!("file:{}/{name}", other.path().display());
    assert_eq!(found(within("below/near")).as_deref(), Some("sk-of-a-file"));
    for closed in [
        "env:ADMIN_TOKEN".to_owned(),
        "env:API_KEY_SECRET".to_owned(),
        "env:DATABASE_URL".to_owned(),
        "env:WAYBILL_MASTER_KEY".to_owned(),
        "env:MISSING".to_owned(),
        "k1".to_owned(),
        "openai:default#0".to_owned(),
        format!("file:{}/secrets/master_key", dir.path().display()),
        format!(
            "file:{}/../{}/secrets/master_key",
            dir.path().display(),
            dir.path().file_name().expect("name").display()
        ),
        "file:/proc/self/environ".to_owned(),
        "file:/dev/zero".to_owned(),
        "file:key".to_owned(),
        within("link"),
        within("way/key"),
        within("out"),
        format!("{}/../{}", within(""), "etc/hostname"),
        format!("file:{}/key", elsewhere.path().display()),
        "file:/etc/hostname".to_owned(),
        within("empty"),
        within("large"),
        within(""),
        within("missing"),
    ] {
        assert_eq!(found(closed.clone()), None, "{closed}");
    }
}

#[test]
fn a_directory_for_credentials_opens_nothing_of_the_node_wherever_it_is_put() {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, content) in [
        ("credentials/key", "sk-one"),
        ("secrets/master_key", MASTER),
        ("other", "x"),
    ] {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, content).expect("write");
    }
    let found = |yaml: &str, name: &str| {
        let machine = machine(&loaded(dir.path(), yaml, &[]));
        machine(&CredentialRef(format!("file:{}/{name}", dir.path().display()))).is_some()
    };
    let at = |name: &str| format!("credentials_dir: {}/{name}", dir.path().display());

    assert!(found("", "credentials/key") && !found("", "secrets/master_key") && !found("", "other"));
    for yaml in [at(""), at("secrets"), at(".."), "credentials_dir: /".to_owned()] {
        for name in ["secrets/master_key", "other"] {
            assert!(!found(&yaml, name), "{name} by {yaml}");
        }
    }
}
