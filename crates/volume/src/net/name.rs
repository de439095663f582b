//! The name in a certificate.

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// An attribute's type: common name (2.5.4.3).
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];

const OBJECT_IDENTIFIER: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;

/// The common name of the certificate of a node.
pub fn node_name(node: u32) -> String {
    format!("node:{node}")
}

/// The common name of the subject; where it has none, the first DNS name of the certificate.
/// The certificate must have been verified: its issuer answers for the name.
pub(super) fn name(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    common_name(certificate.subject()).or_else(|| {
        let first = certificate.valid_dns_names().next();
        first.map(str::to_string)
    })
}

/// The first common name in a subject: a sequence of sets of (type, value).
fn common_name(subject: &[u8]) -> Option<String> {
    let mut sets = subject;
    if let Some((SEQUENCE, inside, [])) = element(subject) {
        sets = inside;
    }
    while let Some((SET, mut pairs, rest)) = element(sets) {
        sets = rest;
        while let Some((SEQUENCE, pair, rest)) = element(pairs) {
            pairs = rest;
            let (OBJECT_IDENTIFIER, kind, value) = element(pair)? else {
                return None;
            };
            if kind == COMMON_NAME {
                let (_, text, _) = element(value)?;
                return String::from_utf8(text.to_vec()).ok();
            }
        }
    }
    None
}

/// The first DER element: its tag, its content, and what is behind it.
fn element(from: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = from.split_first()?;
    let (&short, rest) = rest.split_first()?;
    let (length, rest) = match short {
        0..=0x7f => (usize::from(short), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(short - 0x80))?;
            let length = bytes.iter().fold(0, |sum, b| sum << 8 | usize::from(*b));
            (length, rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_name_is_found_behind_other_attributes() {
        let organisation = [0x31, 11, 0x30, 9, 6, 3, 0x55, 4, 10, 0x0c, 2, b'x', b'y'];
        let common = [
            0x31, 12, 0x30, 10, 6, 3, 0x55, 4, 3, 0x0c, 3, b'n', b'1', b'2',
        ];
        let both = [&organisation[..], &common[..]].concat();
        assert_eq!(common_name(&both).as_deref(), Some("n12"));
        let whole = [&[0x30, both.len() as u8][..], &both[..]].concat();
        assert_eq!(common_name(&whole).as_deref(), Some("n12"));
        assert_eq!(common_name(&organisation), None);
        for cut in 0..both.len() {
            let name = common_name(&both[..cut]);
            assert_eq!(name, None, "{cut}");
        }
    }

    #[test]
    fn a_common_name_within_a_value_is_none() {
        // An organisation whose text looks like a common name.
        let text = [6, 3, 0x55, 4, 3, 0x0c, 1, b'z'];
        let mut pair = vec![6, 3, 0x55, 4, 10, 0x0c, text.len() as u8];
        pair.extend(text);
        let mut subject = vec![0x31, pair.len() as u8 + 2, 0x30, pair.len() as u8];
        subject.extend(pair);
        assert_eq!(common_name(&subject), None);
    }
}
