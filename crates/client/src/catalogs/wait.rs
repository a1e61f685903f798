//! Waiting for an asynchronous call on a plain thread, or on one that belongs to somebody else's asynchronous runtime.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use tokio::runtime::Runtime;

/// Wakes the thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks this thread until `future` is done; `runtime` does the work. Unlike [`Runtime::block_on`] this may be called from
/// inside another runtime, whose thread it then keeps as any blocking call does.
pub(super) fn wait_for<F: Future>(runtime: &Runtime, future: F) -> F::Output {
    // On a plain thread the runtime's own way is a little faster.
    if tokio::runtime::Handle::try_current().is_err() {
        return runtime.block_on(future);
    }
    // Timers and tasks are this runtime's, whatever runtime the caller is in.
    let _inside = runtime.enter();
    // A caller's task has a budget of steps, after which nothing is ever ready until the task yields: this must not count.
    let mut future = pin!(tokio::task::unconstrained(future));
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
