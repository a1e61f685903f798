//! The threads of a transport's streams run on different cores, and a large batch goes over all of them.

use std::collections::BTreeMap;
use std::fs;
use tidepool_testing::eventually;
use tidepool_transfer::conformance::{read, run};
use tidepool_transfer::ops::{Destination, Done, Op};
use tidepool_transfer::testing::{block_bytes, block_id, connect, start_node};

/// Cores that threads of this process with a name like `tcp-0` may run on, as the kernel writes them.
fn cores_of_streams() -> BTreeMap<String, String> {
    let of = |task: fs::DirEntry| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let cores = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some((name.trim().to_owned(), cores.trim().to_owned())).filter(|(name, _)| name.starts_with("tcp-"))
    };
    fs::read_dir("/proc/self/task").unwrap().flatten().filter_map(of).collect()
}

/// Both threads of two streams woke on the core of whoever submitted, and the other core slept: batches of 8 MiB took a
/// seventh longer.
#[test]
fn threads_of_two_streams_are_never_on_one_core() {
    let node = start_node();
    node.memory.put(block_id(0), block_bytes(0, 1000));
    let mut transport = connect(node.address(), 2);
    run(&mut transport, vec![Op::Read(read(0, Destination::Allocate))]);
    let cores = std::thread::available_parallelism().unwrap().get();
    eventually("both streams have cores of their own", || {
        let streams = cores_of_streams();
        let [one, other] = ["tcp-0", "tcp-1"].map(|name| streams.get(name));
        one.is_some() && other.is_some() && (one != other || cores == 1)
    });
}

#[test]
fn large_batches_over_any_number_of_streams_come_whole() {
    let node = start_node();
    let (count, len) = (96, 64 << 10);
    for number in 0..count {
        node.memory.put(block_id(number), block_bytes(number, len));
    }
    for streams in [1, 2, 3, 8] {
        let mut transport = connect(node.address(), streams);
        for _ in 0..5 {
            let reads = (0..count).map(|number| Op::Read(read(number, Destination::Allocate))).collect();
            for (number, completion) in (0..count).zip(run(&mut transport, reads)) {
                let Ok(Done::Read { data: Some(data), .. }) = completion.outcome else { panic!("{completion:?}") };
                assert!(data == block_bytes(number, len), "block {number} over {streams} streams");
            }
        }
    }
}
