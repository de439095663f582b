//! What a request asks for, or why it is refused. Pure.

use super::device::Failure;
use super::protocol::{Request, command, flag};

/// What the requests of a connection are checked against.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// Bytes of the device.
    pub(super) size: u64,
    /// Writes are refused.
    pub(super) read_only: bool,
    /// Replies are structured.
    pub(super) is_structured: bool,
    /// The allocation may be asked for.
    pub(super) has_allocation: bool,
    /// The most bytes of a read or write.
    pub(super) most: u32,
}

/// What to do for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Read,
    Write,
    Discard {
        zeros: bool,
    },
    Flush,
    Extents {
        is_one: bool,
    },
    /// The request is of no bytes: it succeeds.
    Nothing,
    Refuse(Failure),
}

/// The bytes of data that follow a request.
pub(super) fn payload(request: &Request) -> u32 {
    match request.kind {
        command::WRITE => request.length,
        _ => 0,
    }
}

/// Checks a request, except for `NBD_CMD_DISC`.
pub(super) fn check(request: &Request, rules: Rules) -> Action {
    match allow(request, rules) {
        Ok(action) if request.length == 0 && action != Action::Flush => Action::Nothing,
        Ok(action) => action,
        Err(failure) => Action::Refuse(failure),
    }
}

fn allow(request: &Request, rules: Rules) -> Result<Action, Failure> {
    let invalid = |text: &str| Err(Failure::new(Failure::EINVAL, text));
    // FUA is valid with every command, and changes nothing here.
    let (action, flags) = match request.kind {
        command::READ if rules.is_structured => (Action::Read, flag::DF),
        command::READ => (Action::Read, 0),
        command::WRITE => (Action::Write, 0),
        command::TRIM => (Action::Discard { zeros: false }, 0),
        command::WRITE_ZEROES => (Action::Discard { zeros: true }, flag::NO_HOLE),
        command::FLUSH => (Action::Flush, 0),
        command::BLOCK_STATUS => {
            let is_one = request.flags & flag::REQ_ONE != 0;
            (Action::Extents { is_one }, flag::REQ_ONE)
        }
        _ => return invalid("the command is not known"),
    };
    if request.flags & !(flags | flag::FUA) != 0 {
        return invalid("the command does not have these flags");
    }
    if action == Action::Flush {
        return Ok(action);
    }
    let is_write = matches!(request.kind, command::WRITE | command::WRITE_ZEROES);
    if rules.read_only && (is_write || request.kind == command::TRIM) {
        let text = "the export is read-only";
        return Err(Failure::new(Failure::EPERM, text));
    }
    let end = request.offset.checked_add(u64::from(request.length));
    if end.is_none_or(|end| end > rules.size) {
        let errno = if is_write {
            Failure::ENOSPC
        } else {
            Failure::EINVAL
        };
        let text = format!(
            "{} bytes from {} on are not all within the {} of the export",
            request.length, request.offset, rules.size
        );
        return Err(Failure::new(errno, text));
    }
    let has_data = matches!(action, Action::Read | Action::Write);
    if has_data && request.length > rules.most {
        let errno = if rules.is_structured && action == Action::Read {
            Failure::EOVERFLOW
        } else {
            Failure::EINVAL
        };
        let text = format!("a request has at most {} bytes", rules.most);
        return Err(Failure::new(errno, text));
    }
    if request.kind == command::BLOCK_STATUS {
        if !rules.has_allocation {
            return invalid("base:allocation was not negotiated for this export");
        }
        if request.length == 0 {
            return invalid("there is no status of no bytes");
        }
    }
    Ok(action)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules {
        size: 1000,
        read_only: false,
        is_structured: true,
        has_allocation: true,
        most: 100,
    };

    fn asked(rules: Rules, kind: u16, flags: u16, offset: u64, length: u32) -> Action {
        let request = Request {
            flags,
            kind,
            cookie: 1,
            offset,
            length,
        };
        check(&request, rules)
    }

    fn errno(rules: Rules, kind: u16, flags: u16, offset: u64, length: u32) -> u32 {
        match asked(rules, kind, flags, offset, length) {
            Action::Refuse(failure) => failure.errno,
            action => panic!("{action:?} is allowed"),
        }
    }

    #[test]
    fn ranges_past_the_end() {
        for (offset, length) in [(901, 100), (1001, 0), (u64::MAX, 1), (1000, 1)] {
            assert_eq!(errno(RULES, command::READ, 0, offset, length), 22);
            assert_eq!(errno(RULES, command::TRIM, 0, offset, length), 22);
            assert_eq!(errno(RULES, command::BLOCK_STATUS, 0, offset, length), 22);
            assert_eq!(errno(RULES, command::WRITE, 0, offset, length), 28);
            assert_eq!(errno(RULES, command::WRITE_ZEROES, 0, offset, length), 28);
        }
        assert_eq!(asked(RULES, command::READ, 0, 900, 100), Action::Read);
        assert_eq!(asked(RULES, command::WRITE, 0, 1000, 0), Action::Nothing);
        let all = asked(RULES, command::WRITE_ZEROES, 0, 0, 1000);
        assert_eq!(all, Action::Discard { zeros: true });
    }

    #[test]
    fn read_only_exports_refuse_what_changes_them() {
        let rules = Rules {
            read_only: true,
            ..RULES
        };
        for kind in [command::WRITE, command::TRIM, command::WRITE_ZEROES] {
            assert_eq!(errno(rules, kind, 0, 0, 10), 1);
        }
        assert_eq!(asked(rules, command::READ, 0, 0, 10), Action::Read);
        assert_eq!(asked(rules, command::FLUSH, 0, 0, 0), Action::Flush);
    }

    #[test]
    fn flags_are_those_of_the_command() {
        let valid = [
            (command::READ, flag::DF),
            (command::WRITE, 0),
            (command::FLUSH, 0),
            (command::TRIM, 0),
            (command::WRITE_ZEROES, flag::NO_HOLE),
            (command::BLOCK_STATUS, flag::REQ_ONE),
        ];
        for (kind, flags) in valid {
            for bit in 0..16 {
                let action = asked(RULES, kind, 1 << bit, 0, 10);
                let is_allowed = !matches!(action, Action::Refuse(_));
                assert_eq!(
                    is_allowed,
                    (flags | flag::FUA) & 1 << bit != 0,
                    "{kind} {bit}"
                );
            }
        }
        let simple = Rules {
            is_structured: false,
            ..RULES
        };
        assert_eq!(errno(simple, command::READ, flag::DF, 0, 10), 22);
        for kind in [5, 8, 9, u16::MAX] {
            assert_eq!(errno(RULES, kind, 0, 0, 10), 22);
        }
    }

    #[test]
    fn large_requests() {
        assert_eq!(errno(RULES, command::READ, 0, 0, 101), 75);
        assert_eq!(errno(RULES, command::WRITE, 0, 0, 101), 22);
        let simple = Rules {
            is_structured: false,
            ..RULES
        };
        assert_eq!(errno(simple, command::READ, 0, 0, 101), 22);
        let status = asked(RULES, command::BLOCK_STATUS, 0, 0, 1000);
        assert_eq!(status, Action::Extents { is_one: false });
        let none = Rules {
            has_allocation: false,
            ..RULES
        };
        assert_eq!(errno(none, command::BLOCK_STATUS, 0, 0, 10), 22);
        assert_eq!(errno(RULES, command::BLOCK_STATUS, 0, 0, 0), 22);
    }
}
