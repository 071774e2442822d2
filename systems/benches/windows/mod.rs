//! Windows that look like the presets `paper-256k` and `paper-1m`, for benches and tests of a crate that knows no workloads:
//! the same two-mode lognormal lengths, packed more simply.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use skewbench_plan::PackedSequence;

/// Lengths of a corpus.
#[derive(Clone, Copy, Debug)]
struct Corpus {
    /// Share of documents that are drawn from the long mode.
    long_share: f64,
    /// Mean and standard deviation of the logarithm of long lengths.
    long: (f64, f64),
}

impl Corpus {
    /// That at 256K where `window` is below 512K tokens, else that at 1M.
    fn of(window: u32) -> Self {
        if window < 1 << 19 {
            Self { long_share: 0.01087, long: (11.3, 0.8) }
        } else {
            Self { long_share: 0.00322, long: (12.3629, 1.0) }
        }
    }
}

/// Windows to draw; named fields, because both are plain numbers.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    /// Number of windows.
    pub count: usize,
    /// Tokens of each.
    pub tokens: u32,
}

/// Windows packed one after another; a document that does not fit is cut at the window, one that fills a window stands alone.
pub fn windows(Windows { count, tokens: window }: Windows, rng: &mut ChaCha8Rng) -> Vec<PackedSequence> {
    let Corpus { long_share, long } = Corpus::of(window);
    let mut out = Vec::new();
    while out.len() < count {
        let mut room = window;
        let mut documents = Vec::new();
        while room > 0 {
            let (mu, sigma) = if rng.random::<f64>() < long_share { long } else { (7.0, 1.2) };
            let radius = libm::sqrt(-2.0 * libm::log(1.0 - rng.random::<f64>()));
            let normal = radius * libm::cos(std::f64::consts::TAU * rng.random::<f64>());
            let length = (libm::exp(mu + sigma * normal) as u32).clamp(16, window);
            if length == window && !documents.is_empty() {
                out.push(PackedSequence::new([length]));
                continue;
            }
            documents.push(length.min(room));
            room -= length.min(room);
        }
        out.push(PackedSequence::new(documents));
    }
    out.truncate(count);
    out
}
