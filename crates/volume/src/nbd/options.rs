//! The data of options, as a server reads them. Pure functions over bytes.

use super::protocol::{ALLOCATION, Fields};

/// What `NBD_OPT_INFO` and `NBD_OPT_GO` ask for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted<'a> {
    /// The export.
    pub(super) name: &'a str,
    /// Kinds of information.
    pub(super) kinds: Vec<u16>,
}

/// Reads the data of `NBD_OPT_INFO` and `NBD_OPT_GO`; `None` where they are malformed.
pub(super) fn wanted(data: &[u8]) -> Option<Wanted<'_>> {
    let mut fields = Fields::new(data);
    let name = fields.text()?;
    let count = fields.u16()?;
    let kinds = (0..count)
        .map(|_| fields.u16())
        .collect::<Option<Vec<u16>>>()?;
    fields.rest().is_empty().then_some(Wanted { name, kinds })
}

/// What `NBD_OPT_LIST_META_CONTEXT` and `NBD_OPT_SET_META_CONTEXT` ask for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Contexts<'a> {
    /// The export.
    pub(super) name: &'a str,
    queries: Vec<&'a str>,
}

/// Reads the data of both options about metadata contexts; `None` where they are malformed.
pub(super) fn contexts(data: &[u8]) -> Option<Contexts<'_>> {
    let mut fields = Fields::new(data);
    let name = fields.text()?;
    let mut queries = Vec::new();
    for _ in 0..fields.u32()? {
        queries.push(fields.text()?);
    }
    fields
        .rest()
        .is_empty()
        .then_some(Contexts { name, queries })
}

impl Contexts<'_> {
    /// True where a list of these contexts has the one context that there is.
    pub(super) fn list_allocation(&self) -> bool {
        self.queries.is_empty() || self.queries.contains(&"base:") || self.set_allocation()
    }

    /// True where the one context that there is gets selected. The wildcard selects nothing.
    pub(super) fn set_allocation(&self) -> bool {
        self.queries.contains(&ALLOCATION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wanted_is_read_whole_or_not_at_all() {
        let data = b"\0\0\0\x02ab\0\x02\0\x03\0\x01";
        let right = wanted(data).unwrap();
        assert_eq!((right.name, right.kinds), ("ab", vec![3, 1]));
        for end in 0..data.len() {
            assert_eq!(wanted(&data[..end]), None, "{end}");
        }
        assert_eq!(wanted(&[data.as_slice(), b"\0"].concat()), None);
        assert_eq!(wanted(b"\xff\xff\xff\xffab\0\0"), None);
        assert_eq!(wanted(b"\0\0\0\x02\xff\xfe\0\0"), None, "not UTF-8");
        assert_eq!(wanted(b"\0\0\0\x02a\0\0\0"), None, "a NUL");
        let long = [b"\0\0\x10\x01".as_slice(), &[b'a'; 4097], b"\0\0"].concat();
        assert_eq!(wanted(&long), None, "a name longer than 4096 bytes");
    }

    #[test]
    fn contexts_are_matched() {
        let asked = |queries: &[&str]| {
            let mut data = b"\0\0\0\x01v".to_vec();
            data.extend_from_slice(&u32::try_from(queries.len()).unwrap().to_be_bytes());
            for query in queries {
                data.extend_from_slice(&u32::try_from(query.len()).unwrap().to_be_bytes());
                data.extend_from_slice(query.as_bytes());
            }
            for end in 0..data.len() {
                assert_eq!(contexts(&data[..end]), None, "{end}");
            }
            let contexts = contexts(&data).unwrap();
            (contexts.list_allocation(), contexts.set_allocation())
        };
        assert_eq!(asked(&[]), (true, false));
        assert_eq!(asked(&["base:"]), (true, false));
        assert_eq!(asked(&["x-y:", "base:allocation"]), (true, true));
        assert_eq!(asked(&["base:other", "qemu:"]), (false, false));
        assert_eq!(contexts(b"\0\0\0\0\xff\xff\xff\xff"), None);
    }
}
