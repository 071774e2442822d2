use super::{Column, ColumnType, StrColumn};
use crate::StoreError;

/// Most rows of a table: the row index of Parquet readers is 32 bits wide.
const MAX_ROWS: usize = u32::MAX as usize - 1;

/// Named typed columns of equal length; units are part of the names (`latency_ns`, `sent_bytes`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    columns: Vec<(String, Column)>,
}

impl Table {
    /// A table without columns.
    pub fn new() -> Self {
        Self::default()
    }

    /// A table of the given columns.
    ///
    /// # Errors
    /// Names that repeat or are not of the letters `a-z A-Z 0-9 _`, columns of different lengths.
    pub fn from_columns<N: Into<String>>(columns: impl IntoIterator<Item = (N, Column)>) -> Result<Self, StoreError> {
        let mut table = Self::new();
        for (name, column) in columns {
            table.add(name, column)?;
        }
        Ok(table)
    }

    /// A table without rows.
    ///
    /// # Errors
    /// As [`from_columns`](Self::from_columns).
    pub fn empty<N: Into<String>>(schema: impl IntoIterator<Item = (N, ColumnType)>) -> Result<Self, StoreError> {
        Self::from_columns(schema.into_iter().map(|(name, of)| (name, Column::empty(of))))
    }

    /// Adds a column at the end.
    ///
    /// # Errors
    /// As [`from_columns`](Self::from_columns).
    pub fn add(&mut self, name: impl Into<String>, column: impl Into<Column>) -> Result<(), StoreError> {
        let (name, column) = (name.into(), column.into());
        self.fits(&name, &column)?;
        self.columns.push((name, column));
        Ok(())
    }

    /// The table with a column of one repeated string in front.
    pub(crate) fn with_leading(mut self, name: &str, value: &str) -> Result<Self, StoreError> {
        let column = Column::Str(StrColumn::repeat(value, self.rows()));
        self.fits(name, &column)?;
        self.columns.insert(0, (name.to_owned(), column));
        Ok(self)
    }

    fn fits(&self, name: &str, column: &Column) -> Result<(), StoreError> {
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return Err(StoreError::Table(format!("column name {name:?} is not of letters, digits and underscores")));
        }
        if self.column(name).is_some() {
            return Err(StoreError::Table(format!("column {name} occurs twice")));
        }
        if column.len() > MAX_ROWS {
            return Err(StoreError::Table(format!(
                "column {name} has {} rows; at most {MAX_ROWS} are supported",
                column.len()
            )));
        }
        match self.columns.first() {
            Some((first, other)) if other.len() != column.len() => Err(StoreError::Table(format!(
                "column {name} has {} rows, column {first} has {}; all columns need the same number",
                column.len(),
                other.len()
            ))),
            _ => Ok(()),
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |(_, column)| column.len())
    }

    /// Names and columns, in order.
    pub fn columns(&self) -> impl ExactSizeIterator<Item = (&str, &Column)> {
        self.columns.iter().map(|(name, column)| (name.as_str(), column))
    }

    /// Names and types, in order.
    pub fn schema(&self) -> Vec<(String, ColumnType)> {
        self.columns.iter().map(|(name, column)| (name.clone(), column.column_type())).collect()
    }

    /// A column by name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|(n, _)| n == name).map(|(_, column)| column)
    }

    /// A column of 32-bit integers.
    ///
    /// # Errors
    /// No such column, or one of another type.
    pub fn u32(&self, name: &str) -> Result<&[u32], StoreError> {
        match self.column(name) {
            Some(Column::U32(values)) => Ok(values),
            other => Err(self.mismatch(name, ColumnType::U32, other)),
        }
    }

    /// A column of 64-bit integers.
    ///
    /// # Errors
    /// No such column, or one of another type.
    pub fn u64(&self, name: &str) -> Result<&[u64], StoreError> {
        match self.column(name) {
            Some(Column::U64(values)) => Ok(values),
            other => Err(self.mismatch(name, ColumnType::U64, other)),
        }
    }

    /// A column of floating-point numbers.
    ///
    /// # Errors
    /// No such column, or one of another type.
    pub fn f64(&self, name: &str) -> Result<&[f64], StoreError> {
        match self.column(name) {
            Some(Column::F64(values)) => Ok(values),
            other => Err(self.mismatch(name, ColumnType::F64, other)),
        }
    }

    /// A column of strings.
    ///
    /// # Errors
    /// No such column, or one of another type.
    pub fn str(&self, name: &str) -> Result<&StrColumn, StoreError> {
        match self.column(name) {
            Some(Column::Str(values)) => Ok(values),
            other => Err(self.mismatch(name, ColumnType::Str, other)),
        }
    }

    /// A column of flags.
    ///
    /// # Errors
    /// No such column, or one of another type.
    pub fn bool(&self, name: &str) -> Result<&[bool], StoreError> {
        match self.column(name) {
            Some(Column::Bool(values)) => Ok(values),
            other => Err(self.mismatch(name, ColumnType::Bool, other)),
        }
    }

    fn mismatch(&self, name: &str, wanted: ColumnType, found: Option<&Column>) -> StoreError {
        StoreError::Table(match found {
            Some(column) => format!("column {name} holds {:?}, not {wanted:?}", column.column_type()),
            None => {
                let names: Vec<_> = self.columns.iter().map(|(n, _)| n.as_str()).collect();
                format!("no column {name}; there are {}", names.join(", "))
            }
        })
    }

    /// Appends the rows of a table of the same schema.
    ///
    /// # Errors
    /// A different schema, or too many rows.
    pub fn append(&mut self, other: &Self) -> Result<(), StoreError> {
        let (ours, theirs) = (self.schema(), other.schema());
        if ours != theirs {
            return Err(StoreError::Table(format!("columns {theirs:?} cannot follow columns {ours:?}")));
        }
        if self.rows() + other.rows() > MAX_ROWS {
            return Err(StoreError::Table(format!("more than {MAX_ROWS} rows")));
        }
        for ((_, ours), (_, theirs)) in self.columns.iter_mut().zip(&other.columns) {
            ours.append(theirs)?;
        }
        Ok(())
    }

    /// The given rows, in the given order; indices past the end are left out.
    pub fn select(&self, rows: &[usize]) -> Self {
        Self { columns: self.columns.iter().map(|(name, column)| (name.clone(), column.select(rows))).collect() }
    }

    /// Rows `[start, end)`, cut to what there is.
    pub fn slice(&self, start: usize, end: usize) -> Self {
        Self { columns: self.columns.iter().map(|(name, column)| (name.clone(), column.slice(start, end))).collect() }
    }

    /// The table without one column, if it is there.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.columns.retain(|(n, _)| n != name);
        self
    }
}
