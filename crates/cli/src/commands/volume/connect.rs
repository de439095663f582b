//! The connection to a node, and commands of the system group.

use std::time::Duration;

use esker_volume::client::{Client, ClientError};
use esker_volume::net::Security;
use esker_volume::system::{SystemCommand, SystemOutcome};

use crate::args::{AskArgs, TlsArgs};
use crate::failure::{Failure, Outcome};

pub(super) fn security(args: &TlsArgs) -> Result<Security, Failure> {
    match (&args.cert, &args.key, &args.ca) {
        (Some(cert), Some(key), Some(ca)) => {
            Security::load(cert, key, ca).map_err(|error| Failure::Usage(error.to_string()))
        }
        _ => Ok(Security::Plain),
    }
}

pub(super) fn client(args: &AskArgs) -> Result<Client, Failure> {
    let security = security(&args.tls)?;
    Client::connect(&args.node, security, Duration::from_secs(args.wait)).map_err(failed)
}

pub(super) fn failed(error: ClientError) -> Failure {
    match error {
        ClientError::Refused(refusal) => Failure::Store(refusal.to_string()),
        ClientError::Volume(text) => Failure::Usage(text),
        error => Failure::Store(error.to_string()),
    }
}

/// Carries out a command of the system group, and waits until what it began is done.
pub(super) fn system(args: &AskArgs, command: &SystemCommand) -> Result<Outcome, Failure> {
    let mut client = client(args)?;
    let end = std::time::Instant::now() + Duration::from_secs(args.wait.max(1));
    let deletes = matches!(
        command,
        SystemCommand::Delete(_) | SystemCommand::DeleteSnapshot { .. }
    );
    let mut is_begun = false;
    loop {
        match client.system(command).map_err(failed)? {
            SystemOutcome::Ok(Some(volume)) if !volume.is_ready => is_begun = true,
            SystemOutcome::Ok(_) => return Ok(Outcome::Done),
            SystemOutcome::Error(error) => {
                use esker_volume::system::SystemErrorKind as Kind;
                match error.kind {
                    Kind::Busy if std::time::Instant::now() < end => {}
                    Kind::Busy => return Err(Failure::Store(error.text)),
                    // The last of the groups has deleted it.
                    Kind::NotFound if deletes && is_begun => return Ok(Outcome::Done),
                    Kind::NotFound => {
                        crate::output::note(format_args!("{}", error.text));
                        return Ok(Outcome::NotFound);
                    }
                    _ => return Err(Failure::Usage(error.text)),
                }
            }
        }
        if std::time::Instant::now() >= end {
            let text = "it was begun, and is not done in all groups yet: ask again";
            return Err(Failure::Store(text.to_string()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
