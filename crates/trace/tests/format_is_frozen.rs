//! A trace of version 1 means for ever what it means now, and is written as it was.

use tidepool_trace::{BlockHash, Millis, Options, Origin, Reader, Request, SessionId, ToolId, Writer};

const FIXTURE: &str = include_str!("fixtures/v1.jsonl");

fn requests() -> Vec<Request> {
    let request = |at, input_tokens, output_tokens, blocks: &[u64], origin| Request {
        at: Millis(at),
        input_tokens,
        output_tokens,
        blocks: blocks.iter().copied().map(BlockHash).collect(),
        origin,
    };
    let first =
        Origin { session: SessionId(7), parent: None, turn: 0, pause: Millis(0), calls: Some(ToolId(3)), last: false };
    let second = Origin {
        session: SessionId(8),
        parent: Some(SessionId(7)),
        turn: 12,
        pause: Millis(5200),
        calls: Some(ToolId(1)),
        last: true,
    };
    vec![
        request(0, 700, 20, &[1, 0x0123_4567_89ab_cdef], None),
        request(1250, 512, 1, &[1], Some(first)),
        request(9000, 1300, 4, &[1, u64::MAX, 0xab], Some(second)),
        request(9000, 0, 0, &[], None),
    ]
}

#[test]
fn version_1_is_read() {
    let mut reader = Reader::new(FIXTURE.as_bytes(), Options { strict: true, ..Options::default() }).unwrap();
    assert_eq!(reader.block_tokens(), 512);
    assert_eq!(reader.by_ref().collect::<Result<Vec<_>, _>>().unwrap(), requests());
    assert_eq!(reader.report().requests, 4);
}

#[test]
fn version_1_is_written() {
    let mut writer = Writer::new(Vec::new(), 512).unwrap();
    requests().iter().for_each(|request| writer.write(request).unwrap());
    assert_eq!(String::from_utf8(writer.finish().unwrap()).unwrap(), FIXTURE);
}
