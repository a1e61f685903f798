//! The fields of the result. One short function measures each: it starts the sides, lets them take turns, and sets the
//! values.

mod catalog;
mod full;
mod memory;
mod pool;
mod tcp;

pub(crate) use pool::{remove_abandoned_work_dirs, remove_work_dirs};

use super::{BenchError, Plan, Report};

/// Measures a group as the plan says, sets the values and reports its progress.
type Measure = fn(&Plan, &mut Report, &mut dyn FnMut(&str)) -> Result<(), BenchError>;

/// A group of fields that share their sides.
struct Group {
    fields: &'static [&'static str],
    measure: Measure,
}

/// In the order in which they are measured: the short ones first.
const GROUPS: [Group; 7] = [
    Group { fields: &["lookup_keys_per_s"], measure: catalog::lookup },
    Group { fields: &["match_prefix_us_5000"], measure: catalog::match_prefix },
    Group { fields: &["shm_get_vs_memcpy", "put_vs_memcpy"], measure: memory::large },
    Group { fields: &["shm_get_4KiB_keys_per_s", "shm_get_4KiB_vs_memcpy", "shm_get_4KiB_us"], measure: memory::small },
    Group { fields: &["put_full_vs_half"], measure: full::measure },
    Group { fields: &["tcp_get_vs_socket"], measure: tcp::measure },
    Group { fields: &["catalog_bytes_per_block"], measure: catalog::bytes_per_block },
];

/// The fields that are measured together, group by group.
pub(super) fn groups() -> impl Iterator<Item = &'static [&'static str]> {
    GROUPS.iter().map(|group| group.fields)
}

/// Measures all fields that `plan` wants and calls `step` for every sample. A field that fails is null, noted and
/// counted. Returns the number of groups that failed for another reason than time.
pub fn measure(plan: &Plan, report: &mut Report, mut step: impl FnMut(&str)) -> usize {
    let mut failed = 0;
    for group in GROUPS.iter().filter(|group| group.fields.iter().any(|field| plan.wants(field))) {
        if let Err(error) = (group.measure)(plan, report, &mut step) {
            failed += usize::from(!matches!(error, BenchError::OutOfTime));
            report.note(format!("{}: {error}", group.fields.join(", ")));
        }
    }
    failed
}
