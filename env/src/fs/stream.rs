//! Pipes, terminals and devices that a path names: `/dev/stdin`, a FIFO, a shell's `<(command)`.
//!
//! A stream has neither a length nor positions, so [`File`](super::File) cannot read it. Only the command reads streams; no
//! simulated node does, so there is one implementation.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

/// An open stream. It is read once, from its start; clones share the place.
#[derive(Clone, Debug)]
pub struct Stream(Arc<fs::File>);

/// Whether the path names a stream rather than a file or a directory.
pub async fn is_stream(path: &Path) -> io::Result<bool> {
    let kind = fs::metadata(path)?.file_type();
    Ok(!kind.is_file() && !kind.is_dir())
}

impl Stream {
    /// Opens a stream. Blocks until a FIFO has a writer.
    pub fn open_now(path: &Path) -> io::Result<Stream> {
        Ok(Stream(Arc::new(fs::File::open(path)?)))
    }

    /// Reads what has arrived, at most the buffer; 0 at the end. Blocks until something arrives.
    pub fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self.0).read(buffer)
    }
}
