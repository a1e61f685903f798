//! A spawned call may be dropped at any moment; its work is safe, its result thrown away.

use crate::cluster::{BOTH, Cluster, Over, content};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use tidepool_client::{Lost, PutOptions};

#[test]
fn results_can_be_waited_for_and_awaited() {
    let cluster = Cluster::new(1);
    for over in BOTH {
        let client = cluster.client(over);
        let key = format!("{over:?}");
        let put = key.clone();
        let stored = client.spawn(move |client| client.put(put, &content(1, 100_000), &PutOptions::default())).unwrap();
        assert!(stored.wait().unwrap().is_ok());
        let got = client.spawn(move |client| client.get(key)).unwrap();
        let got = block_on(got);
        assert!(got.unwrap().unwrap() == Some(content(1, 100_000)));
    }
}

#[test]
fn dropped_calls_harm_nobody() {
    let cluster = Cluster::new(1);
    for over in BOTH {
        let client = cluster.client(over);
        let bytes = content(2, 1 << 20);
        client.put("block", &bytes, &PutOptions::default()).unwrap();
        for n in 0..200 {
            let put = content(n, 1 << 20);
            let key = format!("{over:?}/{n}");
            drop(client.spawn(move |client| client.put(key, &put, &PutOptions::default())).unwrap());
            drop(client.spawn(|client| client.get_into("block", &mut vec![0; 1 << 20])).unwrap());
        }
        // Whatever the dropped calls did, every block that is there is whole.
        let last = client.spawn(|client| client.get("block")).unwrap().wait().unwrap().unwrap();
        assert!(last.is_none_or(|got| got == bytes));
        for n in 0..200 {
            let got = client.get(format!("{over:?}/{n}")).unwrap();
            assert!(got.is_none_or(|got| got == content(n, 1 << 20)));
        }
    }
}

#[test]
fn a_client_may_be_dropped_while_its_calls_run() {
    let cluster = Cluster::new(1);
    let client = cluster.client(Over::Tcp);
    let calls: Vec<_> = (0..20)
        .map(|n| client.spawn(move |client| client.put(format!("{n}"), &content(n, 100_000), &PutOptions::default())))
        .collect();
    drop(client);
    for call in calls {
        assert!(call.unwrap().wait().unwrap().is_ok());
    }
}

#[test]
fn a_panic_is_told_and_costs_the_others_nothing() {
    let cluster = Cluster::without_catalog(0);
    let client = cluster.client(Over::Shm);
    let panics = client.spawn(|_| panic!("on purpose")).unwrap();
    assert_eq!(panics.wait(), Err::<(), _>(Lost::Panicked));
    assert_eq!(client.spawn(|_| 7).unwrap().wait(), Ok(7));
}

#[test]
fn more_calls_than_may_wait_are_refused() {
    let cluster = Cluster::without_catalog(0);
    let client = cluster.client_with(0, |config| (config.workers, config.queued_calls) = (1, 2));
    let (release, wait) = std::sync::mpsc::sync_channel::<()>(0);
    let (started, running) = std::sync::mpsc::sync_channel::<()>(0);
    let first = client.spawn(move |_| {
        started.send(()).unwrap();
        wait.recv().unwrap();
    });
    running.recv().unwrap();
    let queued: Vec<_> = (0..2).map(|n| client.spawn(move |_| n).unwrap()).collect();
    let refused = client.spawn(|_| ()).err().unwrap();
    assert_eq!(refused.to_string(), "too many calls are waiting for a worker");
    assert_eq!(client.stats().calls_refused, 1);
    release.send(()).unwrap();
    assert!(first.unwrap().wait().is_ok());
    assert!(queued.into_iter().enumerate().all(|(n, call)| call.wait() == Ok(n)));
}

struct Wakes(AtomicUsize, std::thread::Thread);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
        self.1.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let wakes = Arc::new(Wakes(AtomicUsize::new(0), std::thread::current()));
    let waker = Waker::from(Arc::clone(&wakes));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
