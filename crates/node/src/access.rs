//! Who may use a node's memory: the modes of its Unix socket decide, since all else is passed through that.
//!
//! The memory files are the node's own (0600), and a client that may connect is handed their descriptors: it reads every
//! block, and writes where it has reserved. So access is for users whose engines are trusted alike.

use rustix::fs::{Gid, chown};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::str::FromStr;

/// Who may connect to a node's Unix socket, beside root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// The user that the node runs as.
    #[default]
    User,
    /// That user, and members of a group.
    Group(u32),
    /// Every user of the host.
    Everyone,
}

impl Access {
    /// Lets them connect to `socket`.
    pub(crate) fn open(self, socket: &Path) -> io::Result<()> {
        let mode = match self {
            Self::User => 0o600,
            Self::Group(group) => {
                chown(socket, None, Some(Gid::from_raw(group)))?;
                0o660
            }
            Self::Everyone => 0o666,
        };
        fs::set_permissions(socket, fs::Permissions::from_mode(mode))
    }

    /// Whether those who may connect find the socket in `dir`.
    pub(crate) fn reaches_into(self, dir: &Path) -> bool {
        let Ok(found) = fs::metadata(dir) else { return true };
        let others = found.mode() & 0o005 == 0o005;
        match self {
            Self::User => true,
            Self::Group(group) if found.gid() == group => found.mode() & 0o050 == 0o050,
            Self::Group(_) | Self::Everyone => others,
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User => f.write_str("user"),
            Self::Group(group) => write!(f, "group:{group}"),
            Self::Everyone => f.write_str("everyone"),
        }
    }
}

/// Who is meant is not clear: no such word, or no such group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not user, everyone, or group: and the name or number of a group of this host")]
pub struct UnknownAccess(String);

impl FromStr for Access {
    type Err = UnknownAccess;

    fn from_str(text: &str) -> Result<Self, UnknownAccess> {
        let group = |name: &str| {
            let groups = || fs::read_to_string("/etc/group").unwrap_or_default();
            name.parse().ok().or_else(|| number_of(name, &groups()))
        };
        let access = match text {
            "user" => Some(Self::User),
            "everyone" => Some(Self::Everyone),
            _ => text.strip_prefix("group:").and_then(group).map(Self::Group),
        };
        access.ok_or_else(|| UnknownAccess(text.to_owned()))
    }
}

/// The number of the group `name` in a file like `/etc/group`.
fn number_of(name: &str, groups: &str) -> Option<u32> {
    let group = |line: &str| {
        let mut fields = line.split(':');
        let known = fields.next()? == name;
        fields.nth(1).filter(|_| known)?.parse().ok()
    };
    groups.lines().find_map(group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_reads_as_it_is_written() {
        for access in [Access::User, Access::Group(4242), Access::Everyone] {
            assert_eq!(access.to_string().parse(), Ok(access));
        }
        for bad in ["", "group:", "group:-1", "group:no such group", "0660", "Everyone"] {
            assert!(bad.parse::<Access>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_directory_that_hides_its_socket_is_recognised() {
        let dir = tempfile::tempdir().unwrap();
        let own = fs::metadata(dir.path()).unwrap().gid();
        let reached = |mode| {
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
            let all = [Access::User, Access::Group(own), Access::Group(own + 1), Access::Everyone];
            all.map(|access| access.reaches_into(dir.path()))
        };
        assert_eq!(reached(0o700), [true, false, false, false]);
        assert_eq!(reached(0o750), [true, true, false, false]);
        assert_eq!(reached(0o755), [true; 4]);
    }

    #[test]
    fn a_group_is_found_by_its_name() {
        let groups = "root:x:0:\nengines:x:4242:alice,bob\nbroken\nempty:x::\n";
        assert_eq!(number_of("engines", groups), Some(4242));
        for name in ["engine", "broken", "empty", "x", ""] {
            assert_eq!(number_of(name, groups), None, "{name:?}");
        }
    }
}
