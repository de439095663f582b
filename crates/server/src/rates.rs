//! How many requests a client or a token may make.

use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

/// Counts requests by a key: the address of their client ([`network`]), or the name of its token.
pub(crate) struct Rates<K: Hash + Eq + Clone>(Option<DefaultKeyedRateLimiter<K>>);

impl<K: Hash + Eq + Clone> Rates<K> {
    /// At most so many requests a second of each key, and as many at once; 0 is no limit.
    pub(crate) fn new(a_second: u32) -> Rates<K> {
        let quota = NonZeroU32::new(a_second).map(Quota::per_second);
        Rates(quota.map(RateLimiter::keyed))
    }

    /// Counts a request. If it is one too many, returns after how many seconds there may be one
    /// again.
    pub(crate) fn check(&self, key: &K) -> Result<(), u32> {
        let Some(limiter) = &self.0 else {
            return Ok(());
        };
        limiter.check_key(key).map_err(|not_until| {
            let wait = not_until.wait_time_from(DefaultClock::default().now());
            seconds(wait)
        })
    }

    /// Forgets keys that have made no request of late.
    pub(crate) fn sweep(&self) {
        if let Some(limiter) = &self.0 {
            limiter.retain_recent();
        }
    }
}

/// The address by which a client is counted: of IPv6 its network, which has one owner.
pub(crate) fn network(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(one) => Ipv6Addr::from(u128::from(one) & (u128::MAX << 64)).into(),
        v4 => v4,
    }
}

/// Whole seconds, rounded up.
fn seconds(wait: Duration) -> u32 {
    u32::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_its_own_rate() {
        let rates = Rates::new(5);
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let passed = (0..1000).filter(|_| rates.check(&one).is_ok()).count();
        assert!((5..900).contains(&passed), "{passed}");
        assert!(rates.check(&one).is_err_and(|seconds| seconds == 1));
        assert!(rates.check(&other).is_ok());
        let neighbours: [IpAddr; 2] = ["2001:db8::1", "2001:db8::2"].map(|ip| ip.parse().unwrap());
        assert_eq!(network(neighbours[0]), network(neighbours[1]));
        assert_eq!(network("::ffff:10.0.0.1".parse().unwrap()), one);
        rates.sweep();
        assert!(Rates::new(0).check(&one).is_ok());
    }
}
