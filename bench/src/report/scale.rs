//! Axes: where a value is drawn, which values are marked, how numbers are written.

/// Above this ratio of the largest to the smallest value a linear scale shows nothing of the small
/// ones, and the axis becomes logarithmic.
const LINEAR_RATIO: f64 = 40.0;

/// An axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    lo: f64,
    hi: f64,
    /// True when equal steps are equal factors.
    pub log: bool,
}

impl Scale {
    /// An axis that shows `values`. A linear one begins at zero; a logarithmic one, which has no zero,
    /// at a power of ten.
    pub fn of(values: impl Iterator<Item = f64> + Clone) -> Scale {
        let hi = values.clone().fold(0.0, f64::max);
        let lo = values.filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
        if hi <= 0.0 {
            return Scale {
                lo: 0.0,
                hi: 1.0,
                log: false,
            };
        }
        if hi / lo <= LINEAR_RATIO {
            return Scale {
                lo: 0.0,
                hi: hi * 1.02,
                log: false,
            };
        }
        let lo = 10f64.powf((lo * 0.8).log10().floor());
        Scale {
            lo,
            hi: hi * 1.25,
            log: true,
        }
    }

    /// An axis from the least to the greatest value, without zero: for what is not an amount.
    pub fn span(values: impl Iterator<Item = f64> + Clone) -> Scale {
        let mut scale = Scale::of(values.clone());
        if scale.log {
            scale.lo = values.filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
            scale.hi /= 1.25;
        }
        scale
    }

    /// Where `value` is: 0 at the begin of the axis, 1 at its end.
    pub fn place(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.lo) / self.lo).ln() / (self.hi / self.lo).ln()
        } else {
            (value - self.lo) / (self.hi - self.lo)
        };
        share.clamp(0.0, 1.0)
    }

    /// The values to mark: round ones, about `count`.
    pub fn ticks(&self, count: usize) -> Vec<f64> {
        if self.log {
            return self.decades(count);
        }
        let rough = (self.hi - self.lo) / count.max(1) as f64;
        let unit = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|factor| factor * unit)
            .into_iter()
            .find(|step| *step >= rough)
            .unwrap_or(rough);
        let first = (self.lo / step).ceil() as i64;
        let last = (self.hi / step).floor() as i64;
        (first..=last).map(|n| n as f64 * step).collect()
    }

    fn decades(&self, count: usize) -> Vec<f64> {
        let (first, last) = (
            self.lo.log10().floor() as i32,
            self.hi.log10().ceil() as i32,
        );
        let few = (last - first) as usize * 2 <= count;
        let factors: &[f64] = if few { &[1.0, 2.0, 5.0] } else { &[1.0] };
        (first..=last)
            .flat_map(|decade| {
                factors
                    .iter()
                    .map(move |factor| factor * 10f64.powi(decade))
            })
            .filter(|v| *v >= self.lo * 0.999 && *v <= self.hi * 1.001)
            .collect()
    }
}

/// A number for people: three figures, thousands and millions by letter.
pub fn short(value: f64) -> String {
    let size = value.abs();
    let (value, letter) = match size {
        _ if size >= 9_999_500.0 => (value / 1e6, "M"),
        _ if size >= 9_999.5 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let size = value.abs();
    let places = match size {
        _ if size == 0.0 || size >= 99.95 => 0,
        _ if size >= 9.995 => 1,
        _ if size >= 0.0995 => 2,
        _ => 4,
    };
    let text = format!("{value:.places$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    format!("{text}{letter}")
}

/// A count with its thousands apart.
pub fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
