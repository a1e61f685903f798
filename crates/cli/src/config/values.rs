//! The kinds of values that fields have: each reads from text, prints as it was read and says what is allowed.

use super::section::Value;
use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr};
use tidepool_policy::admission::Rule;
use tidepool_policy::eviction::Policy;
use tidepool_types::{ByteSize, NodeName, Span};

impl Value for ByteSize {
    const ALLOWED: &'static str = "a size as in 80GiB (units B, KiB, MiB, GiB, TiB)";
    const NAME: &'static str = "SIZE";
}

impl Value for Span {
    const ALLOWED: &'static str = "a duration as in 5s (units us, ms, s, m, h)";
    const NAME: &'static str = "DURATION";
}

impl Value for u32 {
    const ALLOWED: &'static str = "a whole number";
    const NAME: &'static str = "N";
}

/// Gives a type that reads from text and prints as text the same form in configuration files.
macro_rules! as_text {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

/// Declares a choice between a few words.
macro_rules! words {
    ($(#[$about:meta])* $type:ident: $allowed:literal { $($(#[$doc:meta])* $variant:ident = $word:literal),* $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $type { $($(#[$doc])* $variant),* }

        impl Value for $type {
            const ALLOWED: &'static str = $allowed;
            const NAME: &'static str = "WORD";
        }

        impl FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok(Self::$variant),)*
                    _ => Err(format!("allowed is {}", Self::ALLOWED)),
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $word),* })
            }
        }

        as_text!($type);
    };
}

words! {
    /// When the reader checks bytes against their checksums.
    Verify: "network (what crosses a machine) or always (same-host copies too)" {
        /// Whenever the bytes have crossed a machine.
        Network = "network",
        /// On every read.
        Always = "always",
    }
}

words! {
    /// The least important events that the log has.
    Level: "error, warn, info, debug or trace" {
        /// Failures.
        Error = "error",
        /// Problems that may become failures.
        Warn = "warn",
        /// Changes of state.
        Info = "info",
        /// Decisions.
        Debug = "debug",
        /// Everything.
        Trace = "trace",
    }
}

words! {
    /// The form of a log line.
    Format: "text or json" {
        /// For people.
        Text = "text",
        /// One JSON object a line.
        Json = "json",
    }
}

/// A node's name; `auto` reads as the name of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name(pub NodeName);

impl Value for Name {
    const ALLOWED: &'static str =
        "auto or 1 to 64 characters out of a-z A-Z 0-9 . _ - of which the first is a letter or a digit";
    const NAME: &'static str = "NAME";
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self(host_name()));
        }
        NodeName::new(text).map(Self).map_err(|error| error.to_string())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

as_text!(Name);

/// This host's name with every character that a node's name may not have replaced by a dash.
fn host_name() -> NodeName {
    let uname = rustix::system::uname();
    safe_name(&uname.nodename().to_string_lossy())
}

/// The closest name to `host` that a node may have.
fn safe_name(host: &str) -> NodeName {
    let dashed = host.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' });
    let name: String = dashed.skip_while(|c| !c.is_ascii_alphanumeric()).take(64).collect();
    NodeName::new(name)
        .unwrap_or_else(|_| NodeName::new("node").expect("a name of four letters is within the rules for names"))
}

/// A policy of eviction by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Eviction(pub Policy);

impl Value for Eviction {
    const ALLOWED: &'static str = "lru, s3fifo, sieve or agents";
    const NAME: &'static str = "POLICY";
}

impl FromStr for Eviction {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| format!("allowed is {}", Self::ALLOWED))
    }
}

impl fmt::Display for Eviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

as_text!(Eviction);

/// A rule of admission by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admission(pub Rule);

impl Value for Admission {
    const ALLOWED: &'static str = "all or second-sight";
    const NAME: &'static str = "RULE";
}

impl FromStr for Admission {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| format!("allowed is {}", Self::ALLOWED))
    }
}

impl fmt::Display for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

as_text!(Admission);

/// Who may use a node's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access(pub tidepool_node::Access);

impl Value for Access {
    const ALLOWED: &'static str = "user, everyone, or group: and the name or number of a group of this host";
    const NAME: &'static str = "WHO";
}

impl FromStr for Access {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| format!("allowed is {}", Self::ALLOWED))
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

as_text!(Access);

/// A directory by its absolute path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dir(pub PathBuf);

impl Value for Dir {
    const ALLOWED: &'static str = "an absolute path as in /dev/shm/tidepool";
    const NAME: &'static str = "DIR";
}

impl FromStr for Dir {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let path = PathBuf::from(text);
        if path.is_absolute() && !text.contains('\0') {
            Ok(Self(path))
        } else {
            Err(format!("allowed is {}", Self::ALLOWED))
        }
    }
}

impl fmt::Display for Dir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

as_text!(Dir);

/// An address to listen on; port 0 takes a free one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen(pub SocketAddr);

impl Value for Listen {
    const ALLOWED: &'static str = "an IP address and a port as in 127.0.0.1:7411 or [::1]:7411 (port 0: any free port)";
    const NAME: &'static str = "ADDRESS";
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| format!("allowed is {}", Self::ALLOWED))
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

as_text!(Listen);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_host_name_becomes_a_safe_node_name() {
        let cases =
            [("web-1.example", "web-1.example"), ("my host", "my-host"), ("-x", "x"), ("", "node"), ("☃", "node")];
        for (host, name) in cases {
            assert_eq!(safe_name(host).as_str(), name, "{host:?}");
        }
        assert_eq!(safe_name(&"h".repeat(200)).as_str().len(), 64);
    }

    #[test]
    fn listening_needs_an_address_not_a_host_name() {
        assert!("[::1]:0".parse::<Listen>().is_ok());
        for bad in ["", "localhost:1", "127.0.0.1", "127.0.0.1:65536", ":7411"] {
            assert!(bad.parse::<Listen>().is_err(), "{bad:?}");
        }
    }
}
