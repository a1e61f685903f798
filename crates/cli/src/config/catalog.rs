//! `[catalog]`: where a catalog listens and when it gives up on a silent node.

use super::{FieldError, section::section, values::Listen};
use tidepool_types::Span;

section! {
    /// The settings of a catalog.
    "catalog", flags "" => CatalogConfig, CatalogOptions, checked by check {
        "listen" listen: Listen = "127.0.0.1:7411", "Address of the gRPC service that nodes and clients use";
        "metrics-listen" metrics_listen: Listen = "127.0.0.1:7412", "Address of the catalog's /metrics and /health";
        "suspect-after" suspect_after: Span = "500ms" in "200ms" to "1h", "Silence after which a node is suspect: kept, not chosen for writes";
        "dead-after" dead_after: Span = "5s" in "200ms" to "24h", "Silence after which a node is dead: its blocks are forgotten";
    }
}

impl CatalogConfig {
    fn check(&self) -> Vec<FieldError> {
        if self.dead_after > self.suspect_after {
            return Vec::new();
        }
        let allowed = format!("more than catalog.suspect-after, which is {}", self.suspect_after);
        let error = FieldError::new("catalog.dead-after", self.dead_after, allowed);
        vec![error.against("catalog.suspect-after")]
    }
}
