//! Axis ticks at round numbers. No drawing.

/// Makes about `wanted` round numbers, from 0 to at least `most`.
pub(super) fn linear(most: f64, wanted: usize) -> Vec<f64> {
    if !(most.is_finite() && most > 0.0) {
        return vec![0.0, 1.0];
    }
    let rough = most / wanted.max(1) as f64;
    let magnitude = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .map(|factor| factor * magnitude)
        .into_iter()
        .find(|&step| step >= rough)
        .unwrap_or(10.0 * magnitude);
    let count = (most / step).ceil() as usize;
    (0..=count).map(|index| index as f64 * step).collect()
}

/// Makes ticks of a logarithmic axis that enclose `least` to `most`, both above 0: 1, 2 and 5 of every decade, or only
/// powers of ten for many decades.
pub(super) fn logarithmic(least: f64, most: f64) -> Vec<f64> {
    if !(least.is_finite() && most.is_finite() && least > 0.0 && most >= least) {
        return vec![1.0, 10.0];
    }
    let decades = least.log10().floor() as i32..=most.log10().ceil() as i32;
    let factors: &[f64] = if decades.clone().count() > 4 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let all: Vec<f64> =
        decades.flat_map(|decade| factors.iter().map(move |factor| factor * 10f64.powi(decade))).collect();
    let first = all.iter().rposition(|&tick| tick <= least).unwrap_or(0);
    let last = all.iter().position(|&tick| tick >= most).unwrap_or(all.len() - 1).max(first + 1);
    all[first..=last.min(all.len() - 1)].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_ticks_are_round_and_enclose_the_most() {
        assert_eq!(linear(20.7, 5), [0.0, 5.0, 10.0, 15.0, 20.0, 25.0]);
        assert_eq!(linear(1.0, 4), [0.0, 0.25, 0.5, 0.75, 1.0]);
        for nothing in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(linear(nothing, 4), [0.0, 1.0]);
        }
    }

    #[test]
    fn logarithmic_ticks_enclose_the_range() {
        assert_eq!(logarithmic(130.0, 900.0), [100.0, 200.0, 500.0, 1000.0]);
        assert_eq!(logarithmic(10.0, 10.0), [10.0, 20.0]);
        assert_eq!(logarithmic(3.0, 2e6).first(), Some(&1.0));
        assert_eq!(logarithmic(3.0, 2e6).last(), Some(&1e7));
        assert_eq!(logarithmic(0.0, 5.0), [1.0, 10.0]);
    }
}
