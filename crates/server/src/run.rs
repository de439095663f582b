//! Runs a server in a process of its own: its runtime, its log and its signals.

use std::fmt;
use std::io::{self, IsTerminal};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::{Config, Log, LogFormat};
use crate::serve::{Server, StartError};

/// How long calls that were given up may still run at the end.
const TO_END: Duration = Duration::from_secs(5);

/// Why a server ended.
#[derive(Debug)]
pub enum RunError {
    /// It could not start.
    Start(StartError),
    /// The process lacks what it needs.
    Process(io::Error),
    /// The store could not be closed.
    Close(esker::Error),
}

impl std::fmt::Display for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RunError::Start(error) => write!(f, "{error}"),
            RunError::Process(error) => write!(f, "the server cannot run: {error}"),
            RunError::Close(error) => write!(f, "the store could not be closed: {error}"),
        }
    }
}

impl std::error::Error for RunError {}

impl From<StartError> for RunError {
    fn from(error: StartError) -> RunError {
        RunError::Start(error)
    }
}

/// Serves a store until SIGTERM or SIGINT, and closes it: requests that are running end before. A
/// second signal ends the process at once. Returns the number of the signal.
///
/// `started` is called when requests are served.
///
/// # Errors
/// [`RunError`]
pub fn run(config: Config, started: impl FnOnce(&Server)) -> Result<u8, RunError> {
    let signal = run_until(config, Ends::default(), started)?;
    // Without a length, a signal has ended it.
    Ok(signal.unwrap_or_default())
}

/// How a server ends, beside signals.
#[derive(Default)]
pub struct Ends {
    /// It ends by itself after this time.
    pub length: Option<Duration>,
    /// Called with the exit code before a signal ends the process at once: the second one, or one
    /// while the store is opened.
    pub at_once: Option<Box<dyn FnOnce(i32) + Send>>,
}

/// As [`run`]. Returns `None` if the server has ended by itself.
///
/// # Errors
/// [`RunError`]
pub fn run_until(
    config: Config,
    ends: Ends,
    started: impl FnOnce(&Server),
) -> Result<Option<u8>, RunError> {
    begin_log(config.log);
    let Ends { length, at_once } = ends;
    let exit = move |signal: u8| -> ! {
        let code = 128 + i32::from(signal);
        if let Some(at_once) = at_once {
            at_once(code);
        }
        std::process::exit(code)
    };
    let runtime = Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(RunError::Process)?;
    let ended = runtime.block_on(async {
        let mut signals = Signals::new().map_err(RunError::Process)?;
        let server = tokio::select! {
            server = Server::start(config) => server?,
            // While a store is opened, nothing is lost by an end.
            number = signals.next() => exit(number),
        };
        started(&server);
        let number = tokio::select! {
            number = signals.next() => Some(number),
            () = passed(length) => None,
        };
        tracing::info!("ends: a second signal ends at once");
        tokio::spawn(async move {
            let again = signals.next().await;
            tracing::warn!("ended by a second signal");
            exit(again);
        });
        server.stop().await.map_err(RunError::Close)?;
        Ok(number)
    });
    // Calls that still run find a closed store.
    runtime.shutdown_timeout(TO_END);
    ended
}

/// Waits for a time; without one, for ever.
async fn passed(length: Option<Duration>) {
    match length {
        Some(length) => tokio::time::sleep(length).await,
        None => std::future::pending().await,
    }
}

/// The signals that end a server.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The number of the next signal.
    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 2,
            _ = self.terminate.recv() => 15,
        }
    }
}

/// Writes a line to the log of a server that [`run`] serves.
pub fn log(text: impl fmt::Display) {
    tracing::info!("{text}");
}

/// Logs go to standard error. A process that has a log already keeps it.
fn begin_log(log: Log) {
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let lines = tracing_subscriber::fmt()
        .with_ansi(io::stderr().is_terminal() && !is_plain)
        .with_writer(io::stderr)
        .with_max_level(tracing::Level::INFO);
    // It fails if there is one already.
    let _ = match log.format {
        LogFormat::Text => lines.compact().try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
}
