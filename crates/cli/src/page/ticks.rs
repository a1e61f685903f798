//! Ticks: the marks of an axis and their labels.

/// About the most marks of an axis.
const MARKS: f64 = 6.0;

/// Round numbers that cover `least` to `most`.
pub(super) fn ticks(least: f64, most: f64) -> Vec<f64> {
    // A single value still gets an axis.
    let most = if most > least { most } else { least + 1.0 };
    let rough = (most - least) / MARKS;
    let power = 10f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter().find(|step| *step >= rough).unwrap_or(rough);
    let first = (least / step).floor() as i64;
    let last = (most / step).ceil() as i64;
    (first..=last.max(first + 1)).map(|mark| mark as f64 * step).collect()
}

/// Powers of ten from one to `most` or more; every other one if they are many.
pub(super) fn powers(most: f64) -> Vec<f64> {
    let last = most.max(10.0).log10().ceil() as i32;
    let step = if last > 9 { 2 } else { 1 };
    (0..last + step).step_by(step as usize).map(|power| 10f64.powi(power)).collect()
}

/// A number in few characters.
pub(super) fn label(value: f64) -> String {
    let scaled = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (divisor, unit) = scaled.into_iter().find(|(size, _)| value.abs() >= *size).unwrap_or((1.0, ""));
    let digits = format!("{:.3}", value / divisor);
    let short = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{}{unit}", if short == "-0" { "0" } else { short })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_cover_all() {
        for (least, most) in [(0.0, 1.0), (0.0, 36.6), (-3.0, 7e9), (5.0, 5.0), (0.0, 0.0), (1e-9, 2e-9)] {
            let marks = ticks(least, most);
            assert!(marks.len() >= 2 && marks.len() <= 12, "{least} {most}: {marks:?}");
            assert!(marks[0] <= least && *marks.last().unwrap() >= most, "{least} {most}: {marks:?}");
        }
        assert_eq!(ticks(0.0, 30.0), [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0]);
    }

    #[test]
    fn powers_of_ten_cover_all() {
        for most in [0.0, 1.0, 10.0, 12.0, 5e8, 2e12, 1.8e19] {
            let marks = powers(most);
            assert!((2..=12).contains(&marks.len()) && marks[marks.len() - 1] >= most, "{most}: {marks:?}");
        }
    }

    #[test]
    fn labels_are_short() {
        assert_eq!([0.0, 0.25, 1500.0, 2e6, -3e9].map(label), ["0", "0.25", "1.5k", "2M", "-3G"]);
    }
}
