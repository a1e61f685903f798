//! Every kind of bad input gets an error that names the field, the value and what is allowed; layers win in order.

use super::*;
use std::str::FromStr as _;
use tidepool_types::{ByteSize, Span};

fn error_of(text: &str) -> String {
    parse("pool.toml", text.as_bytes()).expect_err(text).to_string()
}

#[test]
fn no_file_and_no_flags_give_the_defaults() {
    let config = load(None, Layer::default()).unwrap();
    assert_eq!(config.node.capacity, ByteSize(256 << 20));
    assert_eq!(config.catalog.listen.to_string(), "127.0.0.1:7411");
    assert_eq!(config.catalog.dead_after, Span::from_str("5s").unwrap());
    assert_eq!(config.client.catalogs.to_string(), "127.0.0.1:7411");
    assert_eq!(config.log.format.to_string(), "text");
}

#[test]
fn flags_win_over_the_file_and_the_file_over_defaults() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool.toml");
    std::fs::write(&path, "[node]\ncapacity = \"1GiB\"\nname = \"from-file\"\n").unwrap();
    let node = NodeOptions { capacity: Some(ByteSize(2 << 30)), ..NodeOptions::default() };
    let config = load(Some(&path), Layer { node, ..Layer::default() }).unwrap();
    assert_eq!(config.node.capacity, ByteSize(2 << 30));
    assert_eq!(config.node.name.to_string(), "from-file");
    assert_eq!(config.node.max_connections, 1024);
}

#[derive(clap::Parser)]
struct NodeFlags {
    #[command(flatten)]
    node: NodeOptions,
    #[command(flatten)]
    log: LogOptions,
}

#[test]
fn every_field_is_a_flag_of_the_same_name() {
    use clap::Parser as _;
    for field in NodeOptions::fields() {
        let flags = NodeFlags::try_parse_from(["node", &format!("--{}", field.key), field.default]);
        assert_ne!(flags.unwrap_or_else(|error| panic!("{error}")).node, NodeOptions::default(), "{}", field.key);
    }
    let flags = NodeFlags::try_parse_from(["node", "--log-level", "debug"]).unwrap();
    assert_eq!(flags.log.level, Some(Level::Debug));
    assert!(NodeFlags::try_parse_from(["node", "--capacity", "80gb"]).is_err());
}

#[test]
fn what_is_shown_reads_back_as_the_same_configuration() {
    let config = load(None, Layer::default()).unwrap();
    let shown = toml::to_string(&config).unwrap();
    assert_eq!(parse("shown", shown.as_bytes()).unwrap().resolve().unwrap(), config);
}

#[test]
fn every_default_can_be_written_in_a_file() {
    for (section, fields) in Layer::sections() {
        for field in fields {
            let quoted = match field.key {
                "max-connections" | "tcp-streams" => field.default.to_owned(),
                "catalogs" => format!("[\"{}\"]", field.default),
                _ => format!("\"{}\"", field.default),
            };
            let text = format!("[{section}]\n{} = {quoted}\n", field.key);
            assert!(parse("default", text.as_bytes()).is_ok(), "{text}");
        }
    }
}

#[test]
fn a_typo_in_a_field_gets_a_suggestion_and_its_line() {
    let error = error_of("[log]\nlevel = \"info\"\n\n[node]\ncapcity = \"1GiB\"\n");
    assert_eq!(error, "pool.toml:5: there is no field node.capcity: did you mean capacity?");
}

#[test]
fn a_typo_in_a_section_gets_a_suggestion() {
    assert_eq!(error_of("[nodes]\n"), "pool.toml:1: there is no section nodes: did you mean node?");
    let strange = error_of("x = 1\n");
    assert_eq!(strange, "pool.toml:1: there is no section x: allowed is one of catalog, node, client, log");
}

/// A file with several mistakes took a run for each, and the first that was told was a later one. All of them are told, in the
/// order of their lines; a contradiction only if both fields could be read, since a default in place of one means nothing.
#[test]
fn every_mistake_of_a_file_is_told_with_its_line() {
    let text = "\
[log]
level = \"loud\"

[nodes]
capacity = \"1GiB\"

[node]
smallest-expected-block = \"8GiB\"
capcity = \"16GiB\"
max-connections = 1
dir = \"relative\"
data-listen = \"0.0.0.0:7413\"

[catalog]
suspect-after = \"9s\"
dead-after = \"9s\"
";
    let error = error_of(text);
    let told: Vec<&str> = error.lines().map(|line| line.strip_prefix("pool.toml:").unwrap()).collect();
    let expected = [
        "2: log.level = \"loud\": ",
        "4: there is no section nodes: did you mean node?",
        "8: node.smallest-expected-block = 8GiB: allowed is a size",
        "9: there is no field node.capcity: did you mean capacity?",
        "10: node.max-connections = 1: ",
        "11: node.dir = \"relative\": ",
        "12: node.data-advertise = auto: allowed is an address that others reach",
        "16: catalog.dead-after = 9s: allowed is more than catalog.suspect-after",
    ];
    assert_eq!(told.len(), expected.len(), "{error}");
    told.iter().zip(expected).for_each(|(told, expected)| assert!(told.starts_with(expected), "{told}"));
    let text = "[node]\nsmallest-expected-block = \"512MiB\"\ncapacity = \"1GB\"\n\n[log]\nlevel = loud\n";
    let error = error_of(text);
    assert_eq!(error.lines().count(), 2, "{error}");
    assert!(error.starts_with("pool.toml:3: node.capacity = \"1GB\": "), "{error}");
    assert!(error.ends_with("\npool.toml:6: string values must be quoted, expected literal string"), "{error}");
    assert_eq!(error_of(&"x = 1\n".repeat(100_000)).lines().count(), 100, "more than that nobody reads");
}

#[test]
fn a_node_that_listens_everywhere_says_where_it_is() {
    let error = error_of("[node]\ndata-listen = \"0.0.0.0:7413\"\n");
    assert!(error.starts_with("pool.toml:2: node.data-advertise") && error.contains("0.0.0.0:7413"), "{error}");
    assert!(
        parse("pool.toml", b"[node]\ndata-listen = \"0.0.0.0:7413\"\ndata-advertise = \"10.0.0.7:7413\"\n").is_ok()
    );
}

#[test]
fn each_bad_value_is_named_with_what_is_allowed() {
    let cases = [
        ("node", "capacity", "\"5B\"", "5B", "from 1MiB to 16TiB"),
        ("node", "capacity", "\"32TiB\"", "32TiB", "from 1MiB to 16TiB"),
        ("node", "capacity", "\"80gb\"", "\"80gb\"", "a size as in 80GiB"),
        ("node", "capacity", "5", "5", "a size as in 80GiB"),
        ("node", "name", "\"../x\"", "\"../x\"", "auto or 1 to 64 characters"),
        ("node", "dir", "\"relative\"", "\"relative\"", "an absolute path"),
        ("node", "access", "\"group:no such group\"", "\"group:no such group\"", "user, everyone, or group:"),
        ("node", "data-listen", "\"localhost:1\"", "\"localhost:1\"", "an IP address and a port"),
        ("node", "data-advertise", "\"nowhere\"", "\"nowhere\"", "host:port"),
        ("node", "catalogs", "[]", "[]", "a list of 1 to 16"),
        ("node", "catalogs", "[\"a\"]", "[\"a\"]", "a list of 1 to 16"),
        ("node", "catalogs", "\"a:1\"", "\"a:1\"", "a list of 1 to 16"),
        ("node", "max-connections", "0", "0", "a whole number, from 4 to 65536"),
        ("node", "max-connections", "-1", "-1", "a whole number, from 4 to 65536"),
        ("node", "eviction", "\"mru\"", "\"mru\"", "lru, s3fifo, sieve or agents"),
        ("node", "admission", "\"none\"", "\"none\"", "all or second-sight"),
        ("node", "scrub-rate", "0", "0", "from 0B to 1TiB"),
        ("client", "verify", "\"never\"", "\"never\"", "network (what crosses a machine) or always"),
        ("node", "announce-timeout", "\"0s\"", "0us", "from 100ms to 1m"),
        ("catalog", "suspect-after", "\"soon\"", "\"soon\"", "a duration as in 5s"),
        ("client", "deadline", "\"2h\"", "2h", "from 1ms to 1h"),
        ("client", "tcp-streams", "17", "17", "from 1 to 16"),
        ("log", "level", "\"loud\"", "\"loud\"", "error, warn, info, debug or trace"),
        ("log", "format", "true", "true", "text or json"),
    ];
    for (section, key, written, shown, allowed) in cases {
        let error = error_of(&format!("[{section}]\n{key} = {written}\n"));
        assert!(error.starts_with(&format!("pool.toml:2: {section}.{key} = {shown}: allowed is ")), "{error}");
        assert!(error.contains(allowed), "{error}");
    }
}

#[test]
fn fields_that_contradict_each_other_are_refused() {
    let error = error_of("[catalog]\nsuspect-after = \"9s\"\ndead-after = \"9s\"\n");
    assert_eq!(error, "pool.toml:3: catalog.dead-after = 9s: allowed is more than catalog.suspect-after, which is 9s");
    let error = error_of("[node]\ncapacity = \"1MiB\"\nsmallest-expected-block = \"2MiB\"\n");
    assert!(error.starts_with("pool.toml:3: node.smallest-expected-block = 2MiB: allowed is at most"), "{error}");
    let error = error_of(&format!("[node]\nname = \"n\"\ndir = \"/{}\"\n", "d".repeat(120)));
    assert!(error.contains("has at most 107 bytes, not 128"), "{error}");
}

#[test]
fn a_bad_flag_is_named_without_a_file() {
    let node = NodeOptions { capacity: Some(ByteSize(1)), ..NodeOptions::default() };
    let error = load(None, Layer { node, ..Layer::default() }).unwrap_err().to_string();
    assert!(error.starts_with("node.capacity = 1B: allowed is a size"), "{error}");
}

#[test]
fn what_is_not_toml_is_refused_with_its_line() {
    for (text, line) in [("[node\n", 1), ("\n\n= 1\n", 3), ("[log]\nlevel = \"info\"\nlevel = \"info\"\n", 3)] {
        let error = error_of(text);
        assert!(error.starts_with(&format!("pool.toml:{line}: ")), "{error}");
    }
    assert!(error_of("node = 5\n").starts_with("pool.toml:1: node = 5: allowed is a table of fields"));
    let error = parse("pool.toml", b"[log]\n\xff\n").unwrap_err().to_string();
    assert_eq!(error, "pool.toml:2: not UTF-8 text");
}

#[test]
fn a_missing_or_endless_file_is_an_error() {
    assert!(read(std::path::Path::new("/nonexistent/pool.toml")).unwrap_err().to_string().contains("No such file"));
    assert!(read(std::path::Path::new("/dev/zero")).unwrap_err().to_string().contains("longer than 1048576 bytes"));
}
