//! The nesting depth of a record. The JSON parser limits the depth only where it descends. Fields
//! that are not extracted are skipped at any depth, and later readers would refuse them.

/// The maximum nesting of objects and arrays in a record; the limit of serde_json.
pub(crate) const MAX_DEPTH: usize = 127;

/// True if `json` nests deeper than [`MAX_DEPTH`]. Ordinary records cost one vectorised count.
pub(crate) fn is_too_deep(json: &[u8]) -> bool {
    opening_brackets(json) > MAX_DEPTH && deepest(json) > MAX_DEPTH
}

/// The number of `[` and `{`, including those in strings.
fn opening_brackets(json: &[u8]) -> usize {
    json.chunks(255)
        .map(|chunk| {
            // The two bytes differ in one bit. Counting in bytes keeps the vector lanes small.
            usize::from(
                chunk
                    .iter()
                    .fold(0u8, |n, byte| n + u8::from(byte | 0x20 == b'{')),
            )
        })
        .sum()
}

fn deepest(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0usize, 0);
    let mut bytes = json.iter();
    let mut in_string = false;
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if in_string => {
                bytes.next();
            }
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}
