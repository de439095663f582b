//! Sizes as arguments.

/// Reads a size in bytes such as `4096`, `64K`, `64MiB` or `1GB`: units are powers of 1024.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = text.strip_prefix(digits).unwrap_or_default().trim_start();
    let factor: usize = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KB" | "KIB" => 1 << 10,
        "M" | "MB" | "MIB" => 1 << 20,
        "G" | "GB" | "GIB" => 1 << 30,
        _ => {
            return Err(format!(
                "unknown unit `{unit}`: a size is bytes, or a number and K, M or G, as in 64M or 64MiB"
            ));
        }
    };
    let number: usize = digits.parse().map_err(|_| {
        "a size is bytes, or a number and K, M or G, as in 64M or 64MiB".to_string()
    })?;
    let bytes = number.checked_mul(factor).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| "out of range".to_string())
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("64K"), Ok(64 << 10));
        assert_eq!(size("2 MiB"), Ok(2 << 20));
        assert_eq!(size("1gb"), Ok(1 << 30));
        for wrong in [
            "",
            "x",
            "M",
            "0",
            "1.5.2",
            "-1",
            "7Q",
            "99999999999999999999",
            "99999999999G",
        ] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
