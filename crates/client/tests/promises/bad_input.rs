//! What cannot be is refused with a sentence that says what is allowed, before anything moves.

use crate::cluster::{BOTH, Cluster, content};
use tidepool_client::{Client, ClientConfig, GetInto, Parts, PutError, PutItem, PutOptions};

#[test]
fn keys_have_1_to_1024_bytes() {
    let cluster = Cluster::new(1);
    let client = cluster.client(crate::cluster::Over::Shm);
    for (key, message) in [
        (vec![], "key of 0 bytes: a key has 1 to 1024 bytes"),
        (vec![7; 1025], "key of 1025 bytes: a key has 1 to 1024 bytes"),
    ] {
        let put = client.put(&key, b"bytes", &PutOptions::default()).unwrap_err();
        assert_eq!(put.to_string(), message);
        assert_eq!(client.get(&key).unwrap_err().to_string(), message);
        assert_eq!(client.view(&key).unwrap_err().to_string(), message);
        assert_eq!(client.exists(&[&key]).unwrap_err().to_string(), message);
        assert_eq!(client.match_prefix(&[[&key]]).unwrap_err().to_string(), message);
        assert_eq!(client.remove(&key).unwrap_err().to_string(), message);
        assert_eq!(client.describe(&key).unwrap_err().to_string(), message);
        assert_eq!(client.copy_to(&key, &crate::cluster::name("n0")).unwrap_err().to_string(), message);
    }
    assert!(client.put(vec![0xff; 1024], b"bytes", &PutOptions::default()).is_ok());
}

#[test]
fn blocks_have_1_byte_to_1_gib() {
    let cluster = Cluster::new(1);
    let client = cluster.client(crate::cluster::Over::Shm);
    let empty = client.put("key", b"", &PutOptions::default()).unwrap_err();
    assert_eq!(empty.to_string(), "block of 0 bytes: a block has 1 to 1073741824 bytes");
    // The same 64 MiB many times over: too long together, and nothing is read from them.
    let part = vec![0; 64 << 20];
    let many = Parts::Many(vec![&part; 17]);
    let long = client.put("key", many, &PutOptions::default()).unwrap_err();
    assert_eq!(long.to_string(), "block of 1140850688 bytes: a block has 1 to 1073741824 bytes");
}

#[test]
fn one_bad_item_costs_the_others_of_its_batch_nothing() {
    let cluster = Cluster::new(1);
    for over in BOTH {
        let client = cluster.client(over);
        let good = format!("{over:?}");
        let results = client.put_batch(&[PutItem::new("", b"x"), PutItem::new(&good, b"y")], &PutOptions::default());
        assert!(matches!(results[0], Err(PutError::InvalidInput(_))));
        assert!(results[1].is_ok());
        let (mut a, mut b, mut c) = ([0; 1], [0; 1], [0; 0]);
        let mut items =
            [GetInto::new("", &mut a[..]), GetInto::new(&good, &mut b[..]), GetInto::new(&good, &mut c[..])];
        let got = client.get_batch_into(&mut items);
        assert_eq!(got[0].as_ref().unwrap_err().to_string(), "key of 0 bytes: a key has 1 to 1024 bytes");
        assert_eq!(got[1], Ok(Some(1)));
        assert_eq!(got[2].as_ref().unwrap_err().to_string(), "the buffer is too small: 1 bytes are needed");
        assert_eq!(&b, b"y");
    }
}

#[test]
fn a_range_past_the_end_and_a_short_buffer_are_errors() {
    let cluster = Cluster::new(1);
    let bytes = content(1, 300_000);
    for over in BOTH {
        let client = cluster.client(over);
        client.put("block", &bytes, &PutOptions::default()).unwrap();
        for (start, end) in [(0, 300_001), (300_000, 300_001), (5, 5), (u64::MAX - 1, u64::MAX)] {
            let expected = format!(
                "range of {} bytes at {start} in a block of 300000 bytes: \
                 a range has at least 1 byte and ends inside its block",
                end - start
            );
            let error = client.get_range("block", start..end).unwrap_err();
            assert_eq!(error.to_string(), expected, "over {over:?}");
        }
        let short = client.get_into("block", &mut [0; 299_999]).unwrap_err();
        assert_eq!(short.to_string(), "the buffer is too small: 300000 bytes are needed");
        let short = client.get_range_into("block", 100..200, &mut [0; 99]).unwrap_err();
        assert_eq!(short.to_string(), "the buffer is too small: 100 bytes are needed");
    }
}

#[test]
fn bad_settings_are_named() {
    let error = |config| Client::connect(config).unwrap_err().to_string();
    let config = ClientConfig { workers: 0, ..ClientConfig::default() };
    assert_eq!(error(config), "client settings: workers is 0: allowed are 1 to 256");
    let config = ClientConfig { catalogs: vec!["nowhere".to_owned()], ..ClientConfig::default() };
    assert!(error(config).contains("\"nowhere\""));
}

#[test]
fn a_bad_expression_is_explained() {
    let cluster = Cluster::new(1);
    let client = cluster.client(crate::cluster::Over::Shm);
    let error = client.remove_matching("(").unwrap_err().to_string();
    assert!(error.contains("regular expression \"(\""), "{error}");
}
