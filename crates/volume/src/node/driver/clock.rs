//! Time for leases and timeouts: milliseconds since some moment, counting the time that the machine
//! was suspended.

/// Milliseconds; never steps back.
#[cfg(target_os = "linux")]
pub(super) fn now() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

/// Milliseconds; never steps back. Where it does not count suspension, only reads by lease depend
/// on that.
#[cfg(not(target_os = "linux"))]
pub(super) fn now() -> u64 {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_millis() as u64
}

/// Milliseconds of the calendar, by a clock that may be wrong or be set back.
pub(super) fn calendar() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    since.as_millis() as u64
}
