//! The limit on open files: a daemon raises its own as far as it may. The usual 1,024 are fewer than the connections that a
//! node and a catalog take by default, and whoever is out of descriptors can neither serve, nor refuse, nor answer on its pages.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit to what the system allows. Returns what it is then; none: no limit.
pub(super) fn raise() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
    {
        tracing::warn!(%error, "the limit on open files stays as it is");
    }
    getrlimit(Resource::Nofile).current
}

/// How many connections a catalog may have, up to `wanted`: a third of the descriptors. Nodes leave it that.
pub(super) fn for_catalog(limit: Option<u64>, wanted: usize) -> usize {
    limit.map_or(wanted, |limit| wanted.min(usize::try_from(limit / 3).unwrap_or(usize::MAX)).max(1))
}

/// What an operator should know of a catalog that may have fewer connections than it would take.
pub(super) fn catalog_problem(granted: usize, wanted: usize) -> Option<String> {
    (granted < wanted).then(|| {
        format!(
            "{granted} connections are served at most, not {wanted}: the process may not open more files. Raise its limit \
             (ulimit -n, LimitNOFILE=)"
        )
    })
}
