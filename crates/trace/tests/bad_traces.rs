//! Traces come from anywhere: the reader reports the faults of any file and goes on, or stops if it is strict.

use proptest::prelude::*;
use tidepool_trace::{Format, LATEST, MAX_BLOCKS, Options, Reader, Request, TraceError, Writer};

const OPTIONS: Options = Options { format: None, strict: false, block_tokens: 512 };

fn read(text: &[u8], options: Options) -> Result<(Vec<Request>, tidepool_trace::Report), TraceError> {
    let mut reader = Reader::new(text, options)?;
    let requests = reader.by_ref().collect::<Result<Vec<_>, _>>()?;
    Ok((requests, reader.report().clone()))
}

#[test]
fn malformed_lines_are_counted_and_the_first_is_kept() {
    let good = r#"{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [0]}"#;
    let text = format!("{good}\n\nnonsense\n{{\"timestamp\": -1}}\n{good}\n");
    let (requests, report) = read(text.as_bytes(), OPTIONS).unwrap();
    assert_eq!((requests.len(), report.requests, report.malformed), (2, 2, 2));
    let first = report.first_malformed.unwrap();
    assert_eq!((first.line, first.start.as_str()), (3, "nonsense"));
    let strict = read(text.as_bytes(), Options { strict: true, ..OPTIONS }).unwrap_err();
    assert!(matches!(strict, TraceError::Malformed(malformed) if malformed == first));
}

#[test]
fn what_is_shown_of_a_line_is_short_and_harmless_to_a_terminal() {
    for (line, shown) in [
        ("\u{1b}[2J\u{7}".as_bytes().to_vec(), "\u{fffd}[2J\u{fffd}".to_owned()),
        (vec![0xff; 3], "\u{fffd}".repeat(3)),
        ("é".repeat(60).into_bytes(), "é".repeat(60)),
        ("é".repeat(61).into_bytes(), format!("{}...", "é".repeat(60))),
        (vec![b'x'; 18 << 20], format!("{}...", "x".repeat(60))),
    ] {
        let (_, report) = read(&line, Options { format: Some(Format::Mooncake), ..OPTIONS }).unwrap();
        assert_eq!(report.first_malformed.unwrap().start, shown);
    }
}

/// Its format was unknown, as if nothing were in it.
#[test]
fn a_first_line_that_is_too_long_is_malformed_like_any_other() {
    let request = r#"{"timestamp": 1, "input_length": 1, "output_length": 1, "hash_ids": [0]}"#;
    let ids = "7, ".repeat(6 << 20);
    let text = format!("{}, \"more\": [{ids}7]}}\n{request}\n", request.trim_end_matches('}'));
    let (requests, report) = read(text.as_bytes(), OPTIONS).unwrap();
    assert_eq!((requests.len(), report.malformed), (1, 1));
    let first = report.first_malformed.unwrap();
    assert_eq!((first.line, first.reason.as_str()), (1, "longer than 17825792 bytes"));
    assert!(first.start.starts_with("{\"timestamp\": 1, "), "{first}");
    let strict = read(text.as_bytes(), Options { strict: true, ..OPTIONS }).unwrap_err();
    assert_eq!(strict.to_string(), first.to_string());
    let unknown = read("x".repeat(18 << 20).as_bytes(), OPTIONS).unwrap_err();
    assert!(unknown.to_string().contains("xxx"), "{unknown}");
    // What its blocks are is not known.
    let head = format!("{{\"tidepool_trace\":1,\"block_tokens\":[{ids}7]}}\n{request}\n");
    assert!(matches!(read(head.as_bytes(), OPTIONS).unwrap_err(), TraceError::Malformed(_)));
}

/// A head of another version was skipped as one malformed line, and the requests were read with blocks of 512 tokens, whatever theirs
/// had.
#[test]
fn a_head_that_is_not_understood_ends_the_trace_strict_or_not() {
    let request = r#"{"at_ms":1,"input_tokens":1,"output_tokens":1,"blocks":"00000000000000aa"}"#;
    for (head, reason) in [
        (r#"{"tidepool_trace":2,"block_tokens":16}"#, "only version 1 is known"),
        (r#"{"tidepool_trace":1,"block_tokens":16,"x":1}"#, "unknown field"),
        (r#"{"tidepool_trace":1,"block_tokens":0}"#, "allowed is 1 or more"),
    ] {
        let error = read(format!("{head}\n{request}\n").as_bytes(), OPTIONS).unwrap_err();
        assert!(error.to_string().starts_with("line 1: ") && error.to_string().contains(reason), "{error}");
    }
}

#[test]
fn times_that_go_back_are_counted_and_wait_for_those_ahead() {
    let line =
        |at: i32| format!("{{\"timestamp\": {at}, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": []}}\n");
    let (requests, report) = read([5, 3, 7, 6].map(line).concat().as_bytes(), OPTIONS).unwrap();
    assert_eq!(requests.iter().map(|request| request.at.0).collect::<Vec<_>>(), [5, 5, 7, 7]);
    assert_eq!(report.backwards, 2);
}

/// Times up to 2^64 stopped the clocks of simulations at their ends.
#[test]
fn times_and_pauses_past_2_to_the_53_are_malformed() {
    let head = "{\"tidepool_trace\":1,\"block_tokens\":512}\n";
    let line = |at: u64, pause: u64| {
        let rest = "\"input_tokens\":1,\"output_tokens\":1,\"blocks\":\"\",\"session\":1,\"turn\":1";
        format!("{{\"at_ms\":{at},{rest},\"pause_ms\":{pause}}}\n")
    };
    let most = LATEST.0;
    let text = [head, &line(most, most), &line(most + 1, 0), &line(0, most + 1), &line(u64::MAX, 0)].concat();
    let (requests, report) = read(text.as_bytes(), OPTIONS).unwrap();
    assert_eq!((requests.len(), report.malformed, report.backwards), (1, 3, 0));
    let first = report.first_malformed.unwrap().to_string();
    let reason =
        "line 3: at_ms = 9007199254740993: allowed are milliseconds from 0 to 2^53, in {\"at_ms\":9007199254740993,";
    assert!(first.starts_with(reason), "{first}");
    let error = read(text.as_bytes(), Options { strict: true, ..OPTIONS }).unwrap_err();
    assert_eq!(error.to_string(), first);
}

#[test]
fn lengths_that_contradict_the_number_of_blocks_are_counted_and_the_first_is_kept() {
    let line = |tokens: u32, blocks: usize| {
        let ids = vec!["7"; blocks].join(",");
        format!("{{\"timestamp\": 1, \"input_length\": {tokens}, \"output_length\": 1, \"hash_ids\": [{ids}]}}\n")
    };
    // A last block that is not full may be named or not.
    let sound = [(0, 0), (511, 0), (511, 1), (512, 1), (513, 1), (513, 2), (1024, 2)];
    let (requests, report) =
        read(sound.map(|(tokens, blocks)| line(tokens, blocks)).concat().as_bytes(), OPTIONS).unwrap();
    assert_eq!((requests.len(), report.contradictory, report.first_contradictory), (7, 0, None));
    let wrong =
        [(512, 1), (0, 1), (512, 0), (512, 2), (u32::MAX, 3)].map(|(tokens, blocks)| line(tokens, blocks)).concat();
    for strict in [false, true] {
        let (requests, report) = read(wrong.as_bytes(), Options { strict, ..OPTIONS }).unwrap();
        assert_eq!((requests.len(), report.contradictory, report.malformed), (5, 4, 0));
        let first = report.first_contradictory.unwrap().to_string();
        assert_eq!(first, "line 2: 1 block of 512 tokens for an input of 0");
    }
}

#[test]
fn a_byte_order_mark_before_the_first_line_is_no_part_of_it() {
    let lines = [
        include_str!("fixtures/v1.jsonl"),
        "{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [0]}\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n",
    ];
    for text in lines {
        let marked = read(format!("\u{feff}{text}").as_bytes(), Options { strict: true, ..OPTIONS }).unwrap();
        assert_eq!(marked, read(text.as_bytes(), OPTIONS).unwrap());
    }
    let twice = read("\u{feff}\u{feff}{}".as_bytes(), OPTIONS).unwrap_err();
    assert!(twice.to_string().contains("no known format"), "{twice}");
}

#[test]
fn azure_requests_have_blocks_of_their_own_and_times_from_zero() {
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n\
        2023-11-16 18:17:04.0319600,512,8\r\n2023-11-16 18:17:02.0319600,1,8\r\nx,1,2\r\n";
    let (requests, report) = read(text.as_bytes(), OPTIONS).unwrap();
    let shape: Vec<_> = requests.iter().map(|r| (r.at.0, r.input_tokens, r.blocks.len())).collect();
    assert_eq!(shape, [(0, 4808, 10), (52, 512, 1), (52, 1, 1)]);
    let mut blocks: Vec<_> = requests.into_iter().flat_map(|request| request.blocks).collect();
    blocks.dedup();
    assert_eq!(blocks.len(), 12);
    assert_eq!((report.malformed, report.backwards), (1, 1));
}

#[test]
fn a_request_of_too_many_blocks_is_malformed_before_they_are_made() {
    let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,4294967295,10\n";
    let (requests, report) = read(text.as_bytes(), Options { block_tokens: 1, ..OPTIONS }).unwrap();
    assert!(requests.is_empty());
    assert!(report.first_malformed.unwrap().reason.contains(&MAX_BLOCKS.to_string()));
}

#[test]
fn a_file_of_no_known_format_is_refused_and_an_empty_one_is_empty() {
    let error = read(b"hello,world\n1,2\n", OPTIONS).unwrap_err();
    assert!(error.to_string().contains("hello,world"), "{error}");
    assert!(read(b"\n\n", OPTIONS).unwrap().0.is_empty());
}

#[test]
fn a_second_head_must_say_the_same() {
    let head = |tokens: u32| format!("{{\"tidepool_trace\":1,\"block_tokens\":{tokens}}}\n");
    let line = "{\"at_ms\":0,\"input_tokens\":1,\"output_tokens\":1,\"blocks\":\"00000000000000aa\"}\n";
    let same = [&head(64), line, &head(64), line].concat();
    assert_eq!(read(same.as_bytes(), OPTIONS).unwrap().0.len(), 2);
    let error = read([same, head(65), line.to_owned()].concat().as_bytes(), OPTIONS).unwrap_err();
    assert!(error.to_string().contains("line 5: block_tokens = 65"), "{error}");
}

/// Lines that are almost right, so that more than the first check of each parser is met.
fn almost() -> impl Strategy<Value = Vec<u8>> {
    let seeds = [
        include_str!("fixtures/v1.jsonl"),
        "{\"timestamp\": 27482, \"input_length\": 6955, \"output_length\": 52, \"hash_ids\": [46, 47, 48]}\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n",
    ];
    let edits = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3u8), 0..6);
    (prop::sample::select(seeds.to_vec()), edits).prop_map(|(seed, edits)| {
        let mut text = seed.as_bytes().to_vec();
        for (at, byte, kind) in edits {
            let at = at.index(text.len());
            match kind {
                0 => text[at] = byte,
                1 => text.insert(at, byte),
                _ => text.truncate(at.max(1)),
            }
        }
        text
    })
}

proptest! {
    #[test]
    fn parsers_never_panic(text in prop_oneof![almost(), prop::collection::vec(any::<u8>(), 0..300)]) {
        for format in Format::ALL.map(Some).into_iter().chain([None]) {
            if let Ok((requests, report)) = read(&text, Options { format, ..OPTIONS }) {
                prop_assert!(requests.is_sorted_by_key(|request| request.at));
                prop_assert_eq!(requests.len() as u64, report.requests);
                prop_assert_eq!(report.malformed == 0, report.first_malformed.is_none());
            }
        }
    }

    #[test]
    fn what_is_read_and_written_is_read_again(text in almost()) {
        let Ok((requests, _)) = read(&text, OPTIONS) else { return Ok(()) };
        let mut writer = Writer::new(Vec::new(), 512)?;
        for request in &requests {
            writer.write(request)?;
        }
        let (again, report) = read(&writer.finish()?, Options { strict: true, ..OPTIONS })?;
        prop_assert_eq!(again, requests);
        prop_assert_eq!(report.backwards, 0);
    }
}
