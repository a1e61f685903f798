//! The standard library's locks without poison, and [`seats`], which need nothing but these locks.
//!
//! A holder that panics leaves its value either dropped or still right, so poison would tell nothing.
//!
//! A forked child of a process with threads can use these locks. It could not use locks that keep lists of sleeping
//! threads in memory, such as `parking_lot`'s: the lists would name the parent's threads, whose memory the child uses
//! anew.
//!
//! ```
//! use tidepool_locks::{Condvar, Mutex};
//!
//! let (ready, changed) = (Mutex::new(false), Condvar::new());
//! std::thread::scope(|scope| {
//!     scope.spawn(|| {
//!         *ready.lock() = true;
//!         changed.notify_one();
//!     });
//!     changed.wait_while(&mut ready.lock(), |ready| !*ready);
//! });
//! ```
#![forbid(unsafe_code)]

pub mod seats;

use std::ops::{Deref, DerefMut};
use std::sync::{self, PoisonError, TryLockError};
use std::time::{Duration, Instant};

pub use sync::{RwLockReadGuard, RwLockWriteGuard};

/// A mutual exclusion lock without poison, usable in a forked child.
#[derive(Debug, Default)]
pub struct Mutex<T>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Mutex<T> {
    /// Waits until no other thread holds the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Takes the lock if no thread holds it; `None` otherwise.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        unlocked(self.0.try_lock()).map(|guard| MutexGuard(Some(guard)))
    }

    /// The value, without locking: `&mut self` is the only reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a [`Mutex`] locked until dropped.
#[derive(Debug)]
#[must_use = "it is unlocked at once when this is dropped"]
pub struct MutexGuard<'a, T>(Option<sync::MutexGuard<'a, T>>);

const THERE: &str = "a guard is taken for the length of a wait only, which has it borrowed";

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.as_ref().expect(THERE)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect(THERE)
    }
}

/// A condition variable without poison, usable in a forked child.
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

/// Whether a wait timed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waited(bool);

impl Waited {
    /// True if the time ran out before a wake-up.
    #[must_use]
    pub const fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    /// A condition without waiting threads.
    #[must_use]
    pub const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Unlocks, waits to be woken, and locks again. May also wake without a reason.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let locked = guard.0.take().expect(THERE);
        guard.0 = Some(self.0.wait(locked).unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits while `goes_on` returns true.
    pub fn wait_while<T>(&self, guard: &mut MutexGuard<'_, T>, mut goes_on: impl FnMut(&mut T) -> bool) {
        while goes_on(guard) {
            self.wait(guard);
        }
    }

    /// As [`Condvar::wait`], for at most `time`.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) -> Waited {
        let locked = guard.0.take().expect(THERE);
        let (locked, waited) = self.0.wait_timeout(locked, time).unwrap_or_else(PoisonError::into_inner);
        guard.0 = Some(locked);
        Waited(waited.timed_out())
    }

    /// As [`Condvar::wait`], until `until` at the latest.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, until: Instant) -> Waited {
        self.wait_for(guard, until.saturating_duration_since(Instant::now()))
    }
}

/// A readers-writer lock without poison, usable in a forked child.
#[derive(Debug, Default)]
pub struct RwLock<T>(sync::RwLock<T>);

impl<T> RwLock<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }
}

impl<T> RwLock<T> {
    /// Waits until no thread writes.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock to read if no thread writes; `None` otherwise.
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        unlocked(self.0.try_read())
    }

    /// Takes the lock to write if no thread holds it; `None` otherwise.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        unlocked(self.0.try_write())
    }

    /// Waits until no other thread holds the lock.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unlocked<G>(locked: Result<G, TryLockError<G>>) -> Option<G> {
    match locked {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
