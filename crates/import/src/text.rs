//! Numbers for people.

/// The maximum number of bytes stored of a rejected line.
pub(crate) const TEXT_MAX: usize = 64 << 10;

/// A number with separated thousands: `1,234,567`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
