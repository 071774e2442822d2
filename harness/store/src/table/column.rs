use std::collections::HashMap;

use crate::StoreError;

/// Element type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColumnType {
    /// Ranks, waves, steps and other indices.
    U32,
    /// Bytes, pairs, picoseconds.
    U64,
    /// Everything that is not whole.
    F64,
    /// Repeated strings.
    Str,
    /// Flags.
    Bool,
}

/// Strings that repeat: each distinct one is stored once.
#[derive(Clone, Debug, Default)]
pub struct StrColumn {
    distinct: Vec<String>,
    codes: Vec<u32>,
    index: HashMap<String, u32>,
}

impl StrColumn {
    /// An empty column.
    pub fn new() -> Self {
        Self::default()
    }

    /// `len` copies of one string.
    pub fn repeat(value: &str, len: usize) -> Self {
        let mut column = Self::new();
        if len > 0 {
            let code = column.code(value);
            column.codes = vec![code; len];
        }
        column
    }

    /// Appends a string.
    pub fn push(&mut self, value: &str) {
        let code = self.code(value);
        self.codes.push(code);
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.codes.len()
    }

    /// True when there are no rows.
    pub fn is_empty(&self) -> bool {
        self.codes.is_empty()
    }

    /// The string of a row.
    pub fn get(&self, row: usize) -> Option<&str> {
        self.codes.get(row).and_then(|code| self.distinct.get(*code as usize)).map(String::as_str)
    }

    /// The strings of all rows.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.codes.iter().filter_map(|code| self.distinct.get(*code as usize)).map(String::as_str)
    }

    /// The distinct strings, in order of first appearance; rows may use only some of them.
    pub fn distinct(&self) -> &[String] {
        &self.distinct
    }

    /// Index in [`distinct`](Self::distinct) of every row.
    pub fn codes(&self) -> &[u32] {
        &self.codes
    }

    /// A column from its parts, refused when a code has no string or a string occurs twice.
    pub(crate) fn from_parts(distinct: Vec<String>, codes: Vec<u32>) -> Option<Self> {
        let index: HashMap<_, _> = distinct.iter().cloned().zip(0u32..).collect();
        let valid = index.len() == distinct.len() && codes.iter().all(|c| (*c as usize) < distinct.len());
        valid.then_some(Self { distinct, codes, index })
    }

    fn code(&mut self, value: &str) -> u32 {
        if let Some(code) = self.index.get(value) {
            return *code;
        }
        let code = self.distinct.len() as u32;
        self.distinct.push(value.to_owned());
        self.index.insert(value.to_owned(), code);
        code
    }

    /// Rows `[start, end)`, cut to what there is, with the strings that these use and no others: parts of a table of many
    /// cells do not hold the names of all of them.
    fn slice(&self, start: usize, end: usize) -> Self {
        let mut part = Self::new();
        let mut known: HashMap<u32, u32> = HashMap::new();
        let mut last = None;
        for code in self.codes.get(start..end.min(self.codes.len())).unwrap_or_default() {
            let own = match last {
                Some((of, own)) if of == *code => own,
                _ => match known.get(code) {
                    Some(own) => *own,
                    None => {
                        let own = part.code(self.distinct.get(*code as usize).map_or("", String::as_str));
                        known.insert(*code, own);
                        own
                    }
                },
            };
            last = Some((*code, own));
            part.codes.push(own);
        }
        part
    }

    fn append(&mut self, other: &Self) {
        let codes: Vec<u32> = other.distinct.iter().map(|s| self.code(s)).collect();
        self.codes.extend(other.codes.iter().filter_map(|c| codes.get(*c as usize)));
    }
}

impl<S: AsRef<str>> FromIterator<S> for StrColumn {
    fn from_iter<I: IntoIterator<Item = S>>(values: I) -> Self {
        let mut column = Self::new();
        for value in values {
            column.push(value.as_ref());
        }
        column
    }
}

impl PartialEq for StrColumn {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

/// One column. Equality of floating-point columns is by bits, so NaN equals itself.
#[derive(Clone, Debug)]
pub enum Column {
    /// 32-bit unsigned integers.
    U32(Vec<u32>),
    /// 64-bit unsigned integers.
    U64(Vec<u64>),
    /// 64-bit floating-point numbers.
    F64(Vec<f64>),
    /// Strings.
    Str(StrColumn),
    /// Flags.
    Bool(Vec<bool>),
}

impl PartialEq for Column {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::U32(a), Self::U32(b)) => a == b,
            (Self::U64(a), Self::U64(b)) => a == b,
            (Self::F64(a), Self::F64(b)) => a.iter().map(|x| x.to_bits()).eq(b.iter().map(|x| x.to_bits())),
            (Self::Str(a), Self::Str(b)) => a == b,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            _ => false,
        }
    }
}

impl Column {
    /// An empty column of the given type.
    pub fn empty(of: ColumnType) -> Self {
        match of {
            ColumnType::U32 => Self::U32(Vec::new()),
            ColumnType::U64 => Self::U64(Vec::new()),
            ColumnType::F64 => Self::F64(Vec::new()),
            ColumnType::Str => Self::Str(StrColumn::new()),
            ColumnType::Bool => Self::Bool(Vec::new()),
        }
    }

    /// Element type.
    pub fn column_type(&self) -> ColumnType {
        match self {
            Self::U32(_) => ColumnType::U32,
            Self::U64(_) => ColumnType::U64,
            Self::F64(_) => ColumnType::F64,
            Self::Str(_) => ColumnType::Str,
            Self::Bool(_) => ColumnType::Bool,
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::U32(v) => v.len(),
            Self::U64(v) => v.len(),
            Self::F64(v) => v.len(),
            Self::Str(v) => v.len(),
            Self::Bool(v) => v.len(),
        }
    }

    /// True when there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the rows of a column of the same type.
    pub(crate) fn append(&mut self, other: &Self) -> Result<(), StoreError> {
        match (self, other) {
            (Self::U32(a), Self::U32(b)) => a.extend_from_slice(b),
            (Self::U64(a), Self::U64(b)) => a.extend_from_slice(b),
            (Self::F64(a), Self::F64(b)) => a.extend_from_slice(b),
            (Self::Str(a), Self::Str(b)) => a.append(b),
            (Self::Bool(a), Self::Bool(b)) => a.extend_from_slice(b),
            (a, b) => {
                return Err(StoreError::Table(format!(
                    "{:?} rows cannot follow {:?} rows",
                    b.column_type(),
                    a.column_type()
                )));
            }
        }
        Ok(())
    }

    /// The given rows, in the given order; indices past the end are left out.
    pub(crate) fn select(&self, rows: &[usize]) -> Self {
        fn pick<T: Copy>(values: &[T], rows: &[usize]) -> Vec<T> {
            rows.iter().filter_map(|r| values.get(*r)).copied().collect()
        }
        match self {
            Self::U32(v) => Self::U32(pick(v, rows)),
            Self::U64(v) => Self::U64(pick(v, rows)),
            Self::F64(v) => Self::F64(pick(v, rows)),
            Self::Str(v) => Self::Str(rows.iter().filter_map(|r| v.get(*r)).collect()),
            Self::Bool(v) => Self::Bool(pick(v, rows)),
        }
    }

    /// Rows `[start, end)`, cut to what there is.
    pub(crate) fn slice(&self, start: usize, end: usize) -> Self {
        fn cut<T: Copy>(values: &[T], start: usize, end: usize) -> Vec<T> {
            values.get(start..end.min(values.len())).unwrap_or_default().to_vec()
        }
        match self {
            Self::U32(v) => Self::U32(cut(v, start, end)),
            Self::U64(v) => Self::U64(cut(v, start, end)),
            Self::F64(v) => Self::F64(cut(v, start, end)),
            Self::Str(v) => Self::Str(v.slice(start, end)),
            Self::Bool(v) => Self::Bool(cut(v, start, end)),
        }
    }
}

impl From<Vec<u32>> for Column {
    fn from(values: Vec<u32>) -> Self {
        Self::U32(values)
    }
}

impl From<Vec<u64>> for Column {
    fn from(values: Vec<u64>) -> Self {
        Self::U64(values)
    }
}

impl From<Vec<f64>> for Column {
    fn from(values: Vec<f64>) -> Self {
        Self::F64(values)
    }
}

impl From<StrColumn> for Column {
    fn from(values: StrColumn) -> Self {
        Self::Str(values)
    }
}

impl From<Vec<bool>> for Column {
    fn from(values: Vec<bool>) -> Self {
        Self::Bool(values)
    }
}
