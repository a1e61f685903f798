//! The verdict over many series of made-up pairs, from seeds.

use super::*;
use tidepool_types::Random;

/// A deviate of a normal distribution: mean 0, deviation 1, near enough.
fn normal(random: &mut Random) -> f64 {
    (0..12).map(|_| random.below(1 << 32) as f64 / (1_u64 << 32) as f64).sum::<f64>() - 6.0
}

/// Figures of a run: speeds that wander by `noise`, and one run in twenty is slowed by a third by something else.
fn run(random: &mut Random, speed: f64, noise: f64) -> f64 {
    let spoiled = if random.below(20) == 0 { 0.67 } else { 1.0 };
    speed * spoiled * (normal(random) * noise).exp()
}

/// Pairs until the stopping rule ends the series: their estimate and their number.
fn series(random: &mut Random, truth: f64, noise: f64) -> (Estimate, usize) {
    let mut ratios = Vec::new();
    loop {
        for _ in 0..2 {
            ratios.push(run(random, truth, noise) / run(random, 1.0, noise));
        }
        if ratios.len() < FEWEST_PAIRS {
            continue;
        }
        let estimate = Estimate::of(&ratios);
        if is_enough(ratios.len(), estimate.half_width(), ratios.len() as f64) {
            return (estimate, ratios.len());
        }
    }
}

/// [`SERIES`] series.
fn all(seed: u64, truth: f64, noise: f64) -> Vec<(Estimate, usize)> {
    let mut random = Random::new(seed);
    (0..SERIES).map(|_| series(&mut random, truth, noise)).collect()
}

/// How many of them pass, and how many fail.
fn verdicts(seed: u64, truth: f64, noise: f64) -> [usize; 2] {
    let verdicts: Vec<_> =
        all(seed, truth, noise).iter().map(|(estimate, pairs)| Verdict::of(estimate, *pairs)).collect();
    [Verdict::Pass, Verdict::Fail].map(|wanted| verdicts.iter().filter(|&&verdict| verdict == wanted).count())
}

const SERIES: usize = 200;
/// Deviations of a run: a quiet machine, a usual one, and one on which 60 pairs just do.
const NOISES: [f64; 3] = [0.005, 0.02, 0.045];

#[test]
fn a_build_against_itself_passes_and_never_fails() {
    for (noise, seed) in NOISES.into_iter().zip(1..) {
        let [passed, failed] = verdicts(seed, 1.0, noise);
        assert!(passed >= SERIES * 96 / 100, "{passed} passed with noise {noise}, seed {seed}");
        assert!(failed <= SERIES / 100, "{failed} failed with noise {noise}, seed {seed}");
    }
}

#[test]
fn a_build_that_is_8_per_cent_slower_fails_and_never_passes() {
    for (noise, seed) in NOISES.into_iter().zip(11..) {
        let [passed, failed] = verdicts(seed, 0.92, noise);
        assert!(failed >= SERIES * 98 / 100, "{failed} failed with noise {noise}, seed {seed}");
        assert_eq!(passed, 0, "noise {noise}, seed {seed}");
    }
}

#[test]
fn an_interval_holds_the_truth_in_nineteen_series_of_twenty() {
    for (noise, seed) in NOISES.into_iter().zip(21..) {
        let held = |(estimate, _): &&(Estimate, usize)| estimate.low <= 1.1 && 1.1 <= estimate.high;
        let held = all(seed, 1.1, noise).iter().filter(held).count();
        // Looking at the width again and again costs a part of a per cent; 200 series know their share to 3.
        assert!(held >= SERIES * 91 / 100, "{held} held with noise {noise}, seed {seed}");
    }
}

#[test]
fn noise_that_60_pairs_cannot_see_through_leaves_most_open() {
    let [passed, failed] = verdicts(31, 0.97, 0.2);
    assert!(passed + failed <= SERIES / 4, "{passed} passed, {failed} failed");
}

#[test]
fn the_interval_is_that_of_tables_of_the_signed_rank_test() {
    // One more than the critical values of the two-sided test at 5 % that textbooks print.
    for (pairs, critical) in [(5, None), (6, Some(0)), (7, Some(2)), (10, Some(8)), (20, Some(52)), (30, Some(137))] {
        assert_eq!(beyond(pairs).checked_sub(1), critical, "{pairs} pairs");
    }
    let few = Estimate::of(&[1.0; 5]);
    assert_eq!((few.ratio, few.low, few.high), (1.0, 0.0, f64::INFINITY));
    assert_eq!(Estimate::of(&[1.1; 6]).half_width(), 0.0);
}

#[test]
fn the_verdict_follows_from_the_interval() {
    let of = |low, ratio, high| Verdict::of(&Estimate { ratio, low, high }, FEWEST_PAIRS);
    assert_eq!(of(0.95, 0.98, 1.01), Verdict::Pass);
    assert_eq!(of(0.95, 0.97, 0.99), Verdict::Pass);
    assert_eq!(of(0.90, 0.95, 0.999), Verdict::Fail);
    assert_eq!(of(0.955, 0.96, 0.97), Verdict::Fail, "failing comes first");
    assert_eq!(of(0.94, 0.97, 0.99), Verdict::Open, "3 % is not enough to fail");
    assert_eq!(of(0.90, 0.95, 1.0), Verdict::Open);
    assert_eq!(Verdict::of(&Estimate { ratio: 0.5, low: 0.5, high: 0.5 }, FEWEST_PAIRS - 1), Verdict::Open);
}

#[test]
fn pairs_end_when_they_tell_enough_or_cost_too_much() {
    assert!(!is_enough(18, 0.0, 18.0), "too few");
    assert!(is_enough(20, 0.025, 20.0));
    assert!(!is_enough(20, 0.026, 20.0), "too wide");
    assert!(is_enough(60, 0.5, 60.0));
    assert!(!is_enough(2, 0.5, 500.0));
    assert!(is_enough(4, 0.5, 900.0), "two more would end after 1,350 s");
}

#[test]
fn cpu_seconds_may_be_less_but_not_3_per_cent_more() {
    assert!(cpu_is_alike(1.03) && cpu_is_alike(0.5));
    assert!(!cpu_is_alike(1.031) && !cpu_is_alike(f64::NAN));
}
