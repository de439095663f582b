//! Users, passwords and rights.

use argon2::PasswordHasher;
use esker_server::{Config, hash_of};
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::mqttbytes::v5::{
    ConnectReturnCode, Filter, PubAckReason, Publish, SubscribeReasonCode,
};

use super::{Client, Options, config, pair};
use crate::common::Served;

fn hash(password: &str) -> String {
    let small = argon2::Params::new(64, 1, 1, None).unwrap();
    let argon2 = argon2::Argon2::from(small);
    let hash = argon2
        .hash_password_with_salt(password.as_bytes(), b"salt for a test")
        .unwrap();
    hash.to_string()
}

fn served() -> Served {
    let (password, token) = (hash("secret"), hash_of("token"));
    let text = format!(
        r#"
        [[users]]
        name = "ann"
        password = "{password}"
        role = "write"
        topics = ["a"]
        [[users]]
        name = "bob"
        password = "{password}"
        role = "read"
        [[tokens]]
        name = "program"
        sha256 = "{token}"
        role = "write"
        "#
    );
    let mut parsed = Config::parse(&text).unwrap();
    parsed.mqtt = config().mqtt;
    Served::with(parsed)
}

fn login(user: &str, password: &str) -> Options {
    let mut options = Options::new(&format!("client of {user}"));
    options.login = Some((user.to_string(), password.to_string()));
    options
}

#[test]
fn users_are_known_by_their_passwords_and_programs_by_tokens() {
    let served = served();
    let code = |options| Client::try_open(served.mqtt(), options).1.code;
    assert_eq!(code(login("ann", "secret")), ConnectReturnCode::Success);
    assert_eq!(code(login("any", "token")), ConnectReturnCode::Success);
    assert_eq!(
        code(login("ann", "wrong")),
        ConnectReturnCode::BadUserNamePassword
    );
    assert_eq!(
        code(login("eve", "secret")),
        ConnectReturnCode::BadUserNamePassword
    );
    assert_eq!(code(Options::new("c")), ConnectReturnCode::NotAuthorized);
}

#[test]
fn topics_that_are_not_the_callers_are_refused() {
    let served = served();
    let (mut ann, _) = Client::open(served.mqtt(), login("ann", "secret"));
    for (filter, code) in [
        ("a/+/x", SubscribeReasonCode::Success(QoS::AtLeastOnce)),
        (
            "$share/g/a/#",
            SubscribeReasonCode::Success(QoS::AtLeastOnce),
        ),
        ("#", SubscribeReasonCode::NotAuthorized),
        ("+/x", SubscribeReasonCode::NotAuthorized),
        ("ab", SubscribeReasonCode::NotAuthorized),
    ] {
        let answer = ann.subscribe_with(Filter::new(filter, QoS::AtLeastOnce), None);
        assert_eq!(answer.return_codes, [code], "{filter}");
    }
    let (mut bob, _) = Client::open(served.mqtt(), login("bob", "secret"));
    bob.subscribe("#", QoS::AtMostOnce);
    let publish = |topic| Publish::new(topic, QoS::AtLeastOnce, "x", None);
    assert_eq!(
        ann.publish_packet(publish("b")),
        Some(PubAckReason::NotAuthorized)
    );
    assert_eq!(
        bob.publish_packet(publish("b")),
        Some(PubAckReason::NotAuthorized)
    );
    assert_eq!(
        ann.publish_packet(publish("a")),
        Some(PubAckReason::Success)
    );
    assert_eq!(bob.receive(), pair("a", "x"));
}

#[test]
fn a_session_is_its_users_alone() {
    let served = served();
    let options = |user: &str, seconds| {
        let mut options = login(user, "secret");
        options.client = "c".to_string();
        options.clean = false;
        options.properties.session_expiry_interval = Some(seconds);
        options
    };
    let (mut ann, _) = Client::open(served.mqtt(), options("ann", 3600));
    let code = |user| Client::try_open(served.mqtt(), options(user, 3600)).1.code;
    // Neither the connection of another user can be ended, nor its session taken.
    assert_eq!(code("bob"), ConnectReturnCode::NotAuthorized);
    ann.nothing();
    ann.disconnect(None);
    assert_eq!(code("bob"), ConnectReturnCode::NotAuthorized);
    let (ann, was_there) = Client::open(served.mqtt(), options("ann", 3600));
    assert!(was_there);
    ann.disconnect(Some(0));
    assert_eq!(code("bob"), ConnectReturnCode::Success);
}

#[test]
fn wrong_hashes_are_refused_at_the_start() {
    let mut parsed =
        Config::parse("[[users]]\nname = \"a\"\npassword = \"plain\"\nrole = \"read\"").unwrap();
    parsed.mqtt = config().mqtt;
    parsed.listen = "127.0.0.1:0".parse().unwrap();
    let dir = tempfile::tempdir().unwrap();
    parsed.dir = dir.path().join("db");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let refused = runtime
        .block_on(esker_server::Server::start(parsed))
        .err()
        .unwrap();
    assert!(refused.to_string().contains("no argon2 hash"), "{refused}");
}
