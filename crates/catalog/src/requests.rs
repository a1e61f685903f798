//! Checks what comes in: lengths and counts first, with messages that name what is allowed.

use tidepool_schema::{LookupReport, MAX_CHAINS, MAX_IDS, NodeInfo, REMOVED};
use tidepool_types::{BlockId, NodeName, Tier};
use tonic::Status;

/// Longest address, path or host name that a node may introduce itself with.
const MAX_TEXT: usize = 256;

fn invalid(message: String) -> Status {
    Status::invalid_argument(message)
}

/// The ids of a packed field.
pub(crate) fn id_chunks<'a>(field: &str, packed: &'a [u8]) -> Result<&'a [[u8; BlockId::LEN]], Status> {
    let (ids, rest) = packed.as_chunks();
    if rest.is_empty() && ids.len() <= MAX_IDS {
        return Ok(ids);
    }
    let len = packed.len();
    Err(invalid(format!("{field}: {len} bytes; ids are packed, 16 bytes each, and at most {MAX_IDS} of them")))
}

/// One byte per id: a tier, or for changes a removal. A page may leave all of them out.
pub(crate) fn check_tiers(field: &str, tiers: &[u8], ids: usize, page: bool) -> Result<(), Status> {
    if tiers.len() != ids && !(page && tiers.is_empty()) {
        return Err(invalid(format!("{field}: {} bytes for {ids} ids; there is one byte per id", tiers.len())));
    }
    let allowed = |byte: &&u8| Tier::try_from(**byte).is_ok() || (!page && **byte == REMOVED);
    match tiers.iter().find(|byte| !allowed(byte)) {
        Some(byte) => Err(invalid(format!("{field}: {byte} is not a tier; tiers are 0, 1 and 2"))),
        None => Ok(()),
    }
}

/// The chains' lengths add up to the number of ids.
pub(crate) fn check_lengths(lengths: &[u32], ids: usize) -> Result<(), Status> {
    let chains = lengths.len();
    if chains > MAX_CHAINS {
        return Err(invalid(format!("lengths: {chains} chains; at most {MAX_CHAINS} are allowed")));
    }
    let sum: u64 = lengths.iter().map(|length| u64::from(*length)).sum();
    if sum != ids as u64 {
        return Err(invalid(format!("lengths: they add up to {sum}, and there are {ids} ids")));
    }
    Ok(())
}

/// Every look-up of a report has its ids, an age and a kind.
pub(crate) fn check_report(report: &LookupReport) -> Result<(), Status> {
    check_lengths(&report.lengths, id_chunks("ids", &report.ids)?.len())?;
    let (lookups, ages, kinds) = (report.lengths.len(), report.ages.len(), report.kinds.len());
    if ages != lookups || kinds != lookups {
        return Err(invalid(format!("{ages} ages and {kinds} kinds for {lookups} look-ups; each has one of both")));
    }
    Ok(())
}

/// What a node says about itself.
pub(crate) fn check_node(info: &NodeInfo) -> Result<(), Status> {
    NodeName::new(info.name.as_str()).map_err(|error| invalid(error.to_string()))?;
    let texts = [
        ("data_address", &info.data_address),
        ("socket_path", &info.socket_path),
        ("host_hint", &info.host_hint),
        ("build", &info.build),
    ];
    for (field, text) in texts {
        if text.len() > MAX_TEXT {
            return Err(invalid(format!("{field}: {} bytes; at most {MAX_TEXT} are allowed", text.len())));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_a_bad_length_are_rejected_with_what_is_allowed() {
        assert_eq!(id_chunks("ids", &[0; 32]).unwrap().len(), 2);
        let status = id_chunks("ids", &[0; 17]).unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
        let text = "ids: 17 bytes; ids are packed, 16 bytes each, and at most 262144 of them";
        assert_eq!(status.message(), text);
        assert!(id_chunks("ids", &vec![0; 16 * (MAX_IDS + 1)]).is_err());
    }

    #[test]
    fn every_id_has_one_tier() {
        assert!(check_tiers("tiers", &[0, 1, 2], 3, true).is_ok());
        assert!(check_tiers("tiers", &[], 3, true).is_ok());
        assert!(check_tiers("kinds", &[], 3, false).is_err());
        assert!(check_tiers("kinds", &[REMOVED], 1, false).is_ok());
        assert!(check_tiers("tiers", &[REMOVED], 1, true).is_err());
        assert!(check_tiers("kinds", &[3], 1, false).is_err());
    }

    #[test]
    fn every_lookup_of_a_report_has_its_ids_an_age_and_a_kind() {
        let ids = vec![0; 48].into();
        let report = LookupReport {
            ids,
            lengths: vec![1, 2],
            ages: vec![0; 2],
            kinds: vec![1; 2].into(),
            ..LookupReport::default()
        };
        assert!(check_report(&report).is_ok());
        assert!(check_report(&LookupReport { ages: vec![0], ..report.clone() }).is_err());
        assert!(check_report(&LookupReport { kinds: vec![1; 3].into(), ..report.clone() }).is_err());
        assert!(check_report(&LookupReport { lengths: vec![1, 1], ..report.clone() }).is_err());
        assert!(check_report(&LookupReport { ids: vec![0; 47].into(), ..report }).is_err());
    }

    #[test]
    fn chains_cover_the_ids() {
        assert!(check_lengths(&[2, 0, 3], 5).is_ok());
        assert!(check_lengths(&[2], 5).is_err());
        assert!(check_lengths(&[u32::MAX; 5], 5).is_err());
        assert!(check_lengths(&vec![0; MAX_CHAINS + 1], 0).is_err());
    }
}
