//! Addresses of other parts: one `host:port`, a list of catalogs, and the address under which other hosts find a node.

use super::section::Value;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::{fmt, str::FromStr};

/// Most catalogs that one list may name.
const MOST_CATALOGS: usize = 16;

/// The address of another part: a host name or an address, and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort(String);

impl HostPort {
    /// The text, as `host:port`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let well_formed =
            text.rsplit_once(':').is_some_and(|(host, port)| is_host(host) && port.parse::<u16>().is_ok());
        if well_formed {
            Ok(Self(text.to_owned()))
        } else {
            Err(format!("{text:?} is not host:port as in 10.0.0.7:7411"))
        }
    }
}

/// Whether `host` can be a name, an IPv4 address or an IPv6 address in brackets.
fn is_host(host: &str) -> bool {
    match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            (1..=253).contains(&host.len())
                && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The catalogs to use: at least one. A list in a file, separated by commas on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalogs(pub Vec<HostPort>);

impl Value for Catalogs {
    const ALLOWED: &'static str = "a list of 1 to 16 addresses as in [\"127.0.0.1:7411\", \"catalog-b:7411\"]";
    const NAME: &'static str = "ADDRESSES";
}

impl Catalogs {
    fn new(addresses: Vec<HostPort>) -> Result<Self, String> {
        match addresses.len() {
            1..=MOST_CATALOGS => Ok(Self(addresses)),
            other => Err(format!("{other} addresses: allowed is {}", Self::ALLOWED)),
        }
    }
}

impl FromStr for Catalogs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::new(text.split(',').map(|part| part.trim().parse()).collect::<Result<_, _>>()?)
    }
}

impl fmt::Display for Catalogs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(i, one)| write!(f, "{}{one}", if i > 0 { "," } else { "" }))
    }
}

impl Serialize for Catalogs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(HostPort::as_str))
    }
}

impl<'de> Deserialize<'de> for Catalogs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        let addresses = texts.iter().map(|text| text.parse()).collect::<Result<_, _>>().map_err(D::Error::custom)?;
        Self::new(addresses).map_err(D::Error::custom)
    }
}

/// The address under which other hosts reach a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advertise {
    /// The address on which the node listens.
    Auto,
    /// Another address, as behind a proxy or when the node listens on all interfaces.
    At(HostPort),
}

impl Value for Advertise {
    const ALLOWED: &'static str = "auto (what data-listen says) or host:port as in 10.0.0.7:7413";
    const NAME: &'static str = "ADDRESS";
}

impl FromStr for Advertise {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" { Ok(Self::Auto) } else { text.parse().map(Self::At) }
    }
}

impl fmt::Display for Advertise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::At(address) => address.fmt(f),
        }
    }
}

impl Serialize for Advertise {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Advertise {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_a_host_and_a_port() {
        for good in ["127.0.0.1:7411", "catalog-b.svc:0", "[::1]:7411"] {
            assert!(good.parse::<HostPort>().is_ok(), "{good:?}");
        }
        for bad in ["", ":7411", "host", "host:", "host:port", "host:65536", "::1:7411", "a b:1", "http://x:1", "[x]:1"]
        {
            assert!(bad.parse::<HostPort>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn catalogs_are_separated_by_commas_on_the_command_line() {
        let list: Catalogs = "a:1, b:2".parse().unwrap();
        assert_eq!(list.to_string(), "a:1,b:2");
        assert!("a:1,".parse::<Catalogs>().is_err());
        assert!("".parse::<Catalogs>().is_err());
        assert!(vec!["a:1"; 17].join(",").parse::<Catalogs>().is_err());
    }
}
