use skewbench_cuda::CudaError;
use skewbench_cuda::attention::LaunchTimer;
use skewbench_exec::{InstrKind, PassProgram, Program};
use skewbench_plan::{LaunchShape, Mask, Pass, TileShape};
use skewbench_store::stats::quantile;

/// All that the time of a launch depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Pass.
    pub pass: Pass,
    /// Mask of every tile; never exclusive, which is causal with a key fewer.
    pub mask: Mask,
    /// Query heads.
    pub q_heads: u32,
    /// KV heads.
    pub kv_heads: u32,
    /// Elements of a head.
    pub head_dim: u16,
    /// Tiles that see something, in the order of the call.
    pub tiles: Vec<TileShape>,
}

impl Shape {
    /// A launch of these tiles; none where no row sees a key.
    pub fn new(launch: &LaunchShape<'_>) -> Option<Self> {
        let exclusive = launch.mask == Mask::CausalExclusive;
        let seen = |tile: &TileShape| {
            let k = if exclusive { tile.k.saturating_sub(1) } else { tile.k };
            let q = if exclusive { tile.q.min(k) } else { tile.q };
            (q > 0 && k > 0).then_some(TileShape { q, k })
        };
        let tiles: Vec<TileShape> = launch.tiles.iter().filter_map(seen).collect();
        let mask = if exclusive { Mask::Causal } else { launch.mask };
        let &LaunchShape { pass, q_heads, kv_heads, head_dim, .. } = launch;
        (!tiles.is_empty()).then_some(Self { pass, mask, q_heads, kv_heads, head_dim, tiles })
    }

    /// The shape of an instruction; none where it launches nothing.
    pub fn of(program: &Program, pass: Pass, kind: &InstrKind) -> Option<Self> {
        let InstrKind::Launch { tiles, mask, q_heads, kv_heads } = kind else { return None };
        let table: &PassProgram = program.pass(pass);
        Self::new(&LaunchShape {
            pass,
            mask: *mask,
            q_heads: q_heads.len(),
            kv_heads: kv_heads.len(),
            head_dim: program.shape.head_dim,
            tiles: table.shapes.get(tiles.range())?,
        })
    }

    /// The launch.
    pub fn launch(&self) -> LaunchShape<'_> {
        LaunchShape {
            pass: self.pass,
            mask: self.mask,
            q_heads: self.q_heads,
            kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            tiles: &self.tiles,
        }
    }

    /// Rows, keys and unmasked pairs of one head, summed over tiles.
    pub fn totals(&self) -> [u64; 3] {
        let sum = |of: &dyn Fn(&TileShape) -> u64| self.tiles.iter().map(of).sum();
        [sum(&|t| u64::from(t.q)), sum(&|t| u64::from(t.k)), sum(&|t| self.mask.pairs(t.q, t.k))]
    }

    /// The launch with its calls in a journal: words for readers, and a hash of all tiles.
    pub fn point(&self, warm_up: u32, repeats: u32) -> String {
        let mut hash = blake3::Hasher::new();
        for tile in &self.tiles {
            hash.update(&tile.q.to_le_bytes()).update(&tile.k.to_le_bytes());
        }
        format!(
            "{} {} {}:{}x{}, {} tiles {}, {warm_up}+{repeats} calls",
            self.pass_name(),
            self.mask_name(),
            self.q_heads,
            self.kv_heads,
            self.head_dim,
            self.tiles.len(),
            &hash.finalize().to_hex()[..32]
        )
    }

    /// Name of the pass in tables.
    pub fn pass_name(&self) -> &'static str {
        match self.pass {
            Pass::Forward => "forward",
            Pass::Backward => "backward",
        }
    }

    /// Name of the mask in tables.
    pub fn mask_name(&self) -> &'static str {
        if self.mask == Mask::Full { "full" } else { "causal" }
    }
}

/// Times of one launch in the order in which they were taken, nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// Calls before the clock settles; in no statistic.
    pub warm_up: Vec<f64>,
    /// The others; never empty.
    pub repeats: Vec<f64>,
}

impl Samples {
    /// Times a launch.
    ///
    /// # Errors
    /// What the card says; times that are none.
    pub fn take(timer: &mut dyn LaunchTimer, shape: &Shape, warm_up: u32, repeats: u32) -> Result<Self, CudaError> {
        let times = timer.time(&shape.launch(), 0, warm_up + repeats)?;
        let wrong = || CudaError::Program(format!("{times:?} are no times of {} calls", warm_up + repeats));
        Self::of(times.clone(), warm_up, repeats).ok_or_else(wrong)
    }

    /// Times of so many calls, warm-up first; none where they are no times of as many calls.
    pub fn of(mut times: Vec<f64>, warm_up: u32, repeats: u32) -> Option<Self> {
        let whole = times.len() == (warm_up + repeats) as usize && times.iter().all(|t| *t > 0.0 && t.is_finite());
        if !whole || repeats == 0 {
            return None;
        }
        let repeats = times.split_off(warm_up as usize);
        Some(Self { warm_up: times, repeats })
    }

    /// Median of the repeats.
    pub fn median_ns(&self) -> f64 {
        quantile(&self.repeats, 0.5)
    }
}
