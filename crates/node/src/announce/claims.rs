//! Which catalogs this node has a stream to: one each, however many addresses lead there.
//!
//! Only the catalog itself can tell that two addresses are one: names resolve late or to something else tomorrow, and a host
//! has many addresses. So a catalog is known by its incarnation. Two streams to one would replace each other for ever.

use std::collections::HashMap;
use std::sync::Arc;
use tidepool_locks::Mutex;

/// The addresses of catalogs that have a stream, by incarnation.
#[derive(Default)]
pub(super) struct Claims(Mutex<HashMap<u64, String>>);

/// The right to a stream to one catalog; given back when dropped.
pub(super) struct Claim {
    claims: Arc<Claims>,
    incarnation: u64,
}

impl Claims {
    /// Claims the catalog that answers at `address`; the address under which another has it, if one does.
    pub(super) fn claim(self: &Arc<Self>, incarnation: u64, address: &str) -> Result<Claim, String> {
        let mut claims = self.0.lock();
        if let Some(holder) = claims.get(&incarnation) {
            return Err(holder.clone());
        }
        claims.insert(incarnation, address.to_owned());
        Ok(Claim { claims: Arc::clone(self), incarnation })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claims.0.lock().remove(&self.incarnation);
    }
}
