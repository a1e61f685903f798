//! The limit on open files, which a daemon raises as far as it may. The usual 1,024 are fewer than the connections that
//! a node and a catalog take by default, and without descriptors a daemon can neither serve, nor refuse, nor show its
//! pages.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit to the system's. Returns the limit then; none if there is none.
pub(super) fn raise() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
    {
        tracing::warn!(%error, "the limit on open files stays as it is");
    }
    getrlimit(Resource::Nofile).current
}

/// Number of connections that a catalog may have, up to `wanted`: a third of the descriptors, which nodes leave free.
pub(super) fn for_catalog(limit: Option<u64>, wanted: usize) -> usize {
    limit.map_or(wanted, |limit| wanted.min(usize::try_from(limit / 3).unwrap_or(usize::MAX)).max(1))
}

/// The warning for an operator whose catalog may have fewer connections than it would take.
pub(super) fn catalog_problem(granted: usize, wanted: usize) -> Option<String> {
    (granted < wanted).then(|| {
        format!(
            "{granted} connections are served at most, not {wanted}: the process may not open more files. Raise its limit \
             (ulimit -n, LimitNOFILE=)"
        )
    })
}
