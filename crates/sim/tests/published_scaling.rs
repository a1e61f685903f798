//! The published scaling shape: sessions and engines grow together, requests go round-robin, from 75 sessions on 12 engines to 375 on
//! 60. Hits stay above 95 %, and throughput grows with the engines; with a tenth of the network it does not, and the report says why.

use tidepool_sim::Blocks;
use tidepool_sim::cluster::{Cluster, Kind, Report, Source, Speed, Throughput, run};
use tidepool_trace::{Millis, Request, SessionId};
use tidepool_workload::{Agents, Sessions};

const ENGINES: [u32; 3] = [12, 36, 60];
const NIC: f64 = 25e9;

/// Four engines a host, 64 GiB of their own each, and a pool that is large enough.
fn cluster(engines: u32) -> Cluster {
    Cluster { engines, engines_per_host: 4, node_blocks: Blocks::UNLIMITED, ..Cluster::default() }
}

/// Sessions, and from when to when all of them were under way that are so at a time.
struct Watched {
    sessions: Sessions,
    live: usize,
    full: Option<(Millis, Millis)>,
}

impl Source for Watched {
    fn due(&mut self) -> Option<Millis> {
        self.sessions.due()
    }

    fn next(&mut self) -> Option<Request> {
        let request = self.sessions.next()?;
        if self.sessions.live() == self.live {
            self.full.get_or_insert((request.at, request.at)).1 = request.at;
        }
        Some(request)
    }

    fn answered(&mut self, session: SessionId, at: Millis) {
        self.sessions.answered(session, at);
    }
}

/// Three generations of sessions.
fn simulate(cluster: &Cluster) -> Report {
    simulate_generations(cluster, 3)
}

/// So many generations of sessions. Throughput is of a time in which as many are under way as ever.
fn simulate_generations(cluster: &Cluster, generations: u64) -> Report {
    let live = cluster.engines * 75 / 12;
    let agents = Agents { sessions: Some(generations * u64::from(live)), ..Agents::scaling(live) };
    let mut source = Watched { sessions: agents.sessions().unwrap(), live: live as usize, full: None };
    let report = run(cluster, &mut source);
    let (from, until) = source.full.expect("they are all under way at some time");
    let full = from.0 as f64 / 1000.0..=until.0 as f64 / 1000.0;
    let (steady, whole) = (report.steady().expect("it is long enough"), report.whole_run());
    println!(
        "{} engines, {live} sessions at once: {:.2} % hits, {:.3} requests a second from {:.0} to {:.0} s, {:.3} in all {:.0} s, all under way from {full:.0?} s, {:?}",
        cluster.engines,
        100.0 * report.tally.hit_rate(),
        steady.requests,
        steady.from,
        steady.until,
        whole.requests,
        whole.until,
        report
            .loads
            .iter()
            .map(|load| format!("{} {:.2} {:.2}", load.kind.name(), load.mean, load.most))
            .collect::<Vec<_>>(),
    );
    assert!(full.contains(&steady.from) && full.contains(&steady.until), "{full:?} and not all of {steady:?}");
    report
}

/// Throughput of every number of engines, as a part of what the first has for each of them.
fn shape(reports: &[(u32, Report)], rate: impl Fn(&Throughput) -> f64) -> Vec<f64> {
    let each = |(engines, report): &(u32, Report)| rate(&report.throughput()) / f64::from(*engines);
    reports.iter().map(|of| each(of) / each(&reports[0])).collect()
}

fn with_nic(nic: f64) -> Vec<(u32, Report)> {
    let speed = Speed { nic, ..Speed::default() };
    ENGINES.map(|engines| (engines, simulate(&Cluster { speed, ..cluster(engines) }))).into()
}

#[test]
fn throughput_grows_with_the_engines_and_hits_stay_above_95_per_cent() {
    let reports = with_nic(NIC);
    for (engines, report) in &reports {
        assert!(report.tally.hit_rate() > 0.95, "{engines} engines: {}", report.tally.hit_rate());
        assert!(report.saturated().is_empty(), "{engines} engines: {:?}", report.saturated());
    }
    let rates: [fn(&Throughput) -> f64; 3] = [|of| of.requests, |of| of.input_tokens, |of| of.output_tokens];
    for shape in rates.map(|rate| shape(&reports, rate)) {
        assert!(shape.iter().all(|part| (0.9..=1.1).contains(part)), "{shape:?}");
    }
}

#[test]
fn a_tenth_of_the_network_bends_the_line_and_is_named() {
    let reports = with_nic(NIC / 10.0);
    let shape = shape(&reports, |of| of.requests);
    assert!(shape[2] < 0.8, "{shape:?}");
    assert!(shape.windows(2).all(|pair| pair[1] < pair[0]), "{shape:?}");
    for (engines, report) in &reports {
        let saturated = report.saturated();
        let named: Vec<Kind> = saturated.iter().map(|load| load.kind).collect();
        assert!(named.iter().all(|kind| matches!(kind, Kind::NicIn | Kind::NicOut)), "{engines}: {saturated:?}");
        assert!(saturated.first().is_some_and(|load| load.mean > 0.8), "{engines}: {saturated:?}");
    }
}

/// Prints run B of docs/evaluation.md, with the time while all sessions are under way.
#[test]
#[ignore = "prints figures; three of these sizes are checked every time"]
fn whole_runs_have_less_because_of_their_ends() {
    let reports = [12, 24, 36, 48, 60].map(|engines| (engines, simulate_generations(&cluster(engines), 4)));
    let whole = |(engines, report): &(u32, Report)| report.whole_run().requests / f64::from(*engines);
    let part = |of| 100.0 * whole(of) / whole(&reports[0]);
    println!("over whole runs, % of linear: {:.0?}", reports.iter().map(part).collect::<Vec<_>>());
    println!("in the steady state, parts of linear: {:.3?}", shape(&reports, |of| of.requests));
}

/// Nobody keeps the shared prompt but the host that computed it first: all engines' loads meet there.
#[test]
fn a_prompt_that_all_share_is_a_hot_spot_where_engines_keep_nothing() {
    let report = simulate(&Cluster { local_blocks: Blocks(0), ..cluster(60) });
    let saturated = report.saturated();
    let [hot] = saturated.as_slice() else { panic!("{saturated:?}") };
    assert_eq!(hot.kind, Kind::NicOut);
    assert!(hot.most > 0.95 && hot.mean < 0.4, "{hot:?}");
}
