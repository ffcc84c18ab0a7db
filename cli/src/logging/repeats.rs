//! Limits how often one place in the code logs: of more than [`LINES_MAX`] lines in [`INTERVAL`], the rest is left out, and
//! a later line says how many.
//!
//! A disk that fails or a peer that is gone makes the same place log thousands of times a second, which hides everything
//! else and fills the disk of the log. The audit stream is never limited.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tracing::callsite::Identifier;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};

use super::AUDIT;

/// Lines of one place that are shown in an interval.
const LINES_MAX: u32 = 20;
const INTERVAL: Duration = Duration::from_secs(10);
/// Places that are counted at once. They are those of the program, so this is never reached.
const PLACES_MAX: usize = 4096;

/// What the places have logged in the present interval.
static PLACES: Mutex<Option<Places>> = Mutex::new(None);

/// Lets only so many lines of each place pass.
pub struct Limit;

impl<S: Subscriber> Filter<S> for Limit {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        metadata.target() == AUDIT
            || PLACES.lock().get_or_insert_with(Places::default).admit(metadata, terrane_env::time::now_ns())
    }
}

/// Says what was left out, again and again. Never returns.
pub async fn report() {
    loop {
        tokio::time::sleep(INTERVAL).await;
        let left_out =
            PLACES.lock().as_mut().map(|places| places.take(terrane_env::time::now_ns())).unwrap_or_default();
        for place in left_out {
            let Place { target, file, line, left_out, .. } = place;
            tracing::warn!(target: "terrane::log", left_out, "lines like one of {target} at {file}:{line} were left out");
        }
    }
}

#[derive(Default)]
struct Places {
    places: HashMap<Identifier, Place>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    target: String,
    file: String,
    line: u32,
    began_ns: u64,
    shown: u32,
    left_out: u64,
}

impl Places {
    /// Whether a line of this place is shown.
    fn admit(&mut self, metadata: &Metadata<'_>, now_ns: u64) -> bool {
        if self.places.len() >= PLACES_MAX {
            return true;
        }
        let place = self.places.entry(metadata.callsite()).or_insert_with(|| Place {
            target: metadata.target().to_owned(),
            file: metadata.file().unwrap_or("?").to_owned(),
            line: metadata.line().unwrap_or(0),
            began_ns: now_ns,
            shown: 0,
            left_out: 0,
        });
        if now_ns.saturating_sub(place.began_ns) >= nanos(INTERVAL) {
            (place.began_ns, place.shown) = (now_ns, 0);
        }
        if place.shown < LINES_MAX {
            place.shown += 1;
            return true;
        }
        place.left_out += 1;
        false
    }

    /// The places whose lines were left out; they are counted from 0 again. Those that are quiet are forgotten.
    fn take(&mut self, now_ns: u64) -> Vec<Place> {
        let mut left_out = Vec::new();
        self.places.retain(|_, place| {
            if place.left_out > 0 {
                left_out.push(place.clone());
                place.left_out = 0;
            }
            now_ns.saturating_sub(place.began_ns) < nanos(INTERVAL)
        });
        left_out.sort_by(|one, other| (&one.file, one.line).cmp(&(&other.file, other.line)));
        left_out
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// Passes the metadata of each event on.
    struct Seen<F>(F);

    impl<S: Subscriber, F: Fn(&Metadata<'_>) + 'static> tracing_subscriber::Layer<S> for Seen<F> {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            (self.0)(event.metadata());
        }
    }

    /// What becomes of lines that two places log in turn, each at such a time.
    fn play(times_ns: &[u64]) -> (Vec<bool>, Vec<Place>) {
        let shown = std::sync::Arc::new(Mutex::new((Places::default(), Vec::new(), 0)));
        let seen = shown.clone();
        let layer = Seen(move |metadata: &Metadata<'_>| {
            let (places, shown, now_ns) = &mut *seen.lock();
            shown.push(places.admit(metadata, *now_ns));
        });
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            for now_ns in times_ns {
                shown.lock().2 = *now_ns;
                tracing::warn!("one place");
            }
            tracing::warn!("another place");
        });
        let (places, shown, now_ns) = &mut *shown.lock();
        (shown.clone(), places.take(*now_ns))
    }

    #[test]
    fn lines_above_the_limit_are_counted_and_other_places_are_not_touched() {
        let (shown, left_out) = play(&[5; LINES_MAX as usize + 7]);
        assert_eq!(shown.iter().filter(|shown| **shown).count(), LINES_MAX as usize + 1);
        assert_eq!(shown.last(), Some(&true), "another place is not limited");
        assert_eq!(left_out.iter().map(|place| place.left_out).collect::<Vec<_>>(), [7]);
        assert!(left_out[0].file.ends_with("repeats.rs"), "{left_out:?}");
    }

    #[test]
    fn the_limit_is_for_an_interval() {
        let mut times = vec![5; LINES_MAX as usize + 1];
        times.push(5 + nanos(INTERVAL));
        let (shown, left_out) = play(&times);
        assert_eq!(shown[LINES_MAX as usize..], [false, true, true]);
        assert_eq!(left_out.len(), 1);
    }
}
