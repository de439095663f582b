//! `serve` and `token`: a store over the network.

use std::fmt::Arguments;
use std::io::ErrorKind;

use esker_server::{Config, LogFormat, RunError, StartError, hash_of, log, password_hash, run};

use crate::args::{ServeArgs, TokenArgs, TokenRole};
use crate::failure::{Failure, Outcome};
use crate::output::{Output, note};
use crate::store::{refuse_address, refuse_file};

/// The random bytes of a token.
const TOKEN_BYTES: usize = 32;

/// `esker serve DIR`
pub(crate) fn serve(args: &ServeArgs, memory: usize) -> Result<Outcome, Failure> {
    refuse_file(&args.dir)?;
    refuse_address(&args.dir, "a server serves a folder")?;
    let mut config = match &args.config {
        Some(path) => Config::read(path).map_err(Failure::Usage)?,
        None => Config::default(),
    };
    config.memory = Some(config.memory.unwrap_or(memory));
    config.dir.clone_from(&args.dir);
    config.listen = args.listen.unwrap_or(config.listen);
    config.mqtt = args.mqtt.or(config.mqtt);
    config.mqtt_tls = args.mqtt_tls.or(config.mqtt_tls);
    config.mqtt_websocket |= args.mqtt_websocket;
    let has_websocket = config.mqtt_websocket;
    let is_open = !config.needs_token();
    let scheme = match config.tls {
        Some(_) => "https",
        None => "http",
    };
    // Programs that read a log of documents expect nothing else.
    let say = match config.log.format {
        LogFormat::Text => |text: Arguments| note(text),
        LogFormat::Json => |text: Arguments| log(text),
    };
    let signal = run(config, |server| {
        say(format_args!(
            "serves {} at {scheme}://{}",
            args.dir.display(),
            server.address()
        ));
        if let Some(address) = server.mqtt_address() {
            say(format_args!("MQTT at {address}"));
        }
        if let Some(address) = server.mqtt_tls_address() {
            say(format_args!("MQTT over TLS at {address}"));
        }
        if has_websocket {
            let scheme = scheme.replace("http", "ws");
            say(format_args!(
                "MQTT as a WebSocket at {scheme}://{}/mqtt",
                server.address()
            ));
        }
        if is_open {
            say(format_args!(
                "without tokens: every program of this machine may read and write"
            ));
        }
    });
    signal.map(Outcome::Interrupted).map_err(ended)
}

/// Why a server could not start, or not end in good order.
pub(super) fn ended(error: RunError) -> Failure {
    match error {
        RunError::Start(StartError::Store(error)) | RunError::Close(error) => error.into(),
        RunError::Start(StartError::Listen {
            address,
            setting,
            error,
        }) if error.kind() == ErrorKind::AddrInUse => {
            let option = setting.replace('_', "-");
            Failure::Usage(format!(
                "{address} is in use by another program: choose another address with --{option}"
            ))
        }
        error => Failure::Usage(error.to_string()),
    }
}

/// Random bytes.
fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::Store(format!("the system has no random bytes: {error}")))?;
    Ok(bytes)
}

/// The password on standard input.
fn password() -> Result<String, Failure> {
    let mut line = String::new();
    let read = std::io::stdin().read_line(&mut line);
    read.map_err(|error| Failure::Usage(format!("standard input cannot be read: {error}")))?;
    let password = line.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        let what = "give the password as a line of standard input";
        return Err(Failure::Usage(what.to_string()));
    }
    Ok(password.to_string())
}

/// `esker token NAME`
pub(crate) fn token(args: &TokenArgs) -> Result<Outcome, Failure> {
    let text = |text: &str| serde_json::Value::from(text).to_string();
    let mut output = Output::new();
    let secret = if args.user {
        let hash = password_hash(&password()?, random()?).map_err(Failure::Usage)?;
        output.line("[[users]]")?;
        output.line(format_args!("name = {}", text(&args.name)))?;
        output.line(format_args!("password = {}", text(&hash)))?;
        None
    } else {
        let token: String = random::<TOKEN_BYTES>()?
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        output.line("[[tokens]]")?;
        output.line(format_args!("name = {}", text(&args.name)))?;
        output.line(format_args!("sha256 = \"{}\"", hash_of(&token)))?;
        Some(token)
    };
    let list = |all: &[String]| {
        let all: Vec<String> = all.iter().map(|one| text(one)).collect();
        format!("[{}]", all.join(", "))
    };
    let role = match args.role {
        TokenRole::Read => "read",
        TokenRole::Write => "write",
        TokenRole::Admin => "admin",
    };
    output.line(format_args!("role = \"{role}\""))?;
    for (name, all) in [("datasets", &args.datasets), ("topics", &args.topics)] {
        if !all.is_empty() {
            output.line(format_args!("{name} = {}", list(all)))?;
        }
    }
    output.finish()?;
    if let Some(token) = secret {
        note(format_args!("the token, which is not kept: {token}"));
    }
    Ok(Outcome::Done)
}
