//! Shuttle's locks with the interface of parking_lot's: a lock has no error, since a panic ends the whole test.

use std::cell::Cell;
use std::sync::PoisonError;

pub use shuttle::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard, atomic};

/// See `parking_lot::Mutex`.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(shuttle::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock, if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().ok()
    }
}

/// See `parking_lot::RwLock`.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(shuttle::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(shuttle::sync::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until there is no writer.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is neither a reader nor a writer.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A moment at which another thread may run.
pub fn point() {
    // Any atomic is one. `yield_now` would be one too, but lowers the thread's priority.
    atomic::AtomicBool::new(false).load(atomic::Ordering::SeqCst);
}

thread_local! {
    /// All tasks of an execution run on the thread of their test.
    static PLANTED: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Plants a mistake in what this thread tests from now on; `None` removes it.
pub fn plant(mistake: Option<&'static str>) {
    PLANTED.set(mistake);
}

/// Whether [`plant`] has planted this mistake.
pub fn is_planted(mistake: &'static str) -> bool {
    PLANTED.get() == Some(mistake)
}
