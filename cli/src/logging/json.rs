//! A log line as one JSON object: `time`, `level`, `target`, `message`, the other fields under their names in `fields`, and
//! `spans`, the outermost first.

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::registry::LookupSpan;

/// The field that holds the message.
const MESSAGE: &str = "message";

/// Writes each event as an object.
pub struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'l> LookupSpan<'l>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut fields = Fields::default();
        event.record(&mut fields);
        let message = fields.0.remove(MESSAGE).unwrap_or_else(|| Value::from(""));
        let spans = context.event_scope().map(|spans| spans.from_root().map(|span| Value::from(span.name())).collect());
        let metadata = event.metadata();
        let line =
            line(time, metadata.level().as_str(), metadata.target(), message, fields.0, spans.unwrap_or_default());
        writeln!(writer, "{line}")
    }
}

/// A line that no event stands for.
pub fn line_of(level: &str, target: &str, message: &str, fields: Map<String, Value>) -> Value {
    let mut time = String::new();
    // A string takes whatever is written.
    SystemTime.format_time(&mut Writer::new(&mut time)).ok();
    line(time, level, target, message.into(), fields, Vec::new())
}

fn line(
    time: String,
    level: &str,
    target: &str,
    message: Value,
    fields: Map<String, Value>,
    spans: Vec<Value>,
) -> Value {
    let mut line = Map::new();
    line.insert("time".to_owned(), time.into());
    line.insert("level".to_owned(), level.into());
    line.insert("target".to_owned(), target.into());
    line.insert(MESSAGE.to_owned(), message);
    if !fields.is_empty() {
        line.insert("fields".to_owned(), Value::Object(fields));
    }
    if !spans.is_empty() {
        line.insert("spans".to_owned(), Value::Array(spans));
    }
    Value::Object(line)
}

/// The fields of an event.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn set(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.set(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_is_an_object_whatever_the_event_says() {
        let kept = Kept::default();
        let writer = kept.clone();
        let layer = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .event_format(JsonLines);
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            let _outer = tracing::info_span!("outer").entered();
            tracing::warn!(region = 7_u64, ok = false, error = %"a \"quote\"\nand a line", "split {}", "failed");
            tracing::info!(target: "audit", "");
        });
        let text = String::from_utf8(kept.0.lock().clone()).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert_eq!((&lines[0]["level"], &lines[0]["message"]), (&"WARN".into(), &"split failed".into()));
        let fields = &lines[0]["fields"];
        assert_eq!((&fields["region"], &fields["ok"]), (&7.into(), &false.into()));
        assert_eq!(fields["error"], "a \"quote\"\nand a line");
        assert_eq!(lines[0]["spans"], serde_json::json!(["outer"]));
        assert!(lines[0]["time"].as_str().unwrap().ends_with('Z'), "{text}");
        assert_eq!(lines[1]["target"], "audit");
    }
}
