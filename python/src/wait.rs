//! Calls that may take long: they run without the interpreter, and end when Ctrl-C is pressed.
//!
//! Python handles signals in the main thread alone, and only while that one runs Python. So there
//! such a call runs on a thread of its own, and the main thread looks for signals 20 times a
//! second.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use esker::Stop;
use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::error::exception;

/// The interval between two looks for signals.
const LOOK: Duration = Duration::from_millis(50);

/// How long a cancelled call may take to end. Reads end within a block; what does not end, such as
/// a request to a server, is left alone.
const GRACE: Duration = Duration::from_secs(5);

/// True in the thread that handles signals.
fn is_main(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?.getattr("ident")?;
    main.eq(threading.call_method0("get_ident")?)
}

/// Runs a call; a signal whose handler raises cancels `stop` and ends the wait.
pub(crate) fn wait<T: Send + 'static>(
    py: Python<'_>,
    stop: &Stop,
    call: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    if !is_main(py)? {
        return Ok(py.detach(call));
    }
    let (done, result) = channel();
    // `Receiver` is not shared between threads: a lock makes it so that it can be lent.
    let result = Mutex::new(result);
    let thread = std::thread::Builder::new().name("esker-python".to_string());
    let run = move || {
        // After a signal, the result is of no use.
        let _ = done.send(call());
    };
    if let Err(error) = thread.spawn(run) {
        let text = format!("cannot start a thread: {error}");
        return Err(exception(py, "IoError", &text));
    }
    let mut raised: Option<(PyErr, Instant)> = None;
    loop {
        let next = py.detach(|| result.lock().recv_timeout(LOOK));
        match (next, raised.take()) {
            (Ok(value), None) => return Ok(value),
            (Ok(_), Some((signal, _))) => return Err(signal),
            (Err(RecvTimeoutError::Disconnected), _) => {
                let text = "a call of the store panicked; its message is on standard error";
                return Err(exception(py, "InternalError", text));
            }
            (Err(RecvTimeoutError::Timeout), None) => {
                if let Err(signal) = py.check_signals() {
                    stop.cancel();
                    raised = Some((signal, Instant::now()));
                }
            }
            (Err(RecvTimeoutError::Timeout), Some((signal, since))) => {
                if since.elapsed() > GRACE {
                    return Err(signal);
                }
                raised = Some((signal, since));
            }
        }
    }
}
