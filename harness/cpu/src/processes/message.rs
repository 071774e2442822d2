//! Messages between processes as bytes, little-endian.

use crate::memory::Contribution;
use crate::transfers::Message;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// What a rank sends another in a call.
    Data,
    /// A process cannot go on with the run.
    Stop,
    /// What a process has computed.
    Part,
    /// What the first process makes of all parts.
    Verdict,
}

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    /// Number of the run.
    pub(super) run: u64,
    /// 0 the forward, 1 the backward.
    pub(super) pass: u8,
    pub(super) call: u32,
    /// Rank, or process where none is meant.
    pub(super) from: u32,
    pub(super) to: u32,
}

const HEADER: usize = 22;

impl Header {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut bytes = vec![self.kind as u8, self.pass];
        bytes.extend(self.run.to_le_bytes());
        for number in [self.call, self.from, self.to] {
            bytes.extend(number.to_le_bytes());
        }
        bytes
    }

    /// The header of a message, and what follows it.
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = bytes.split_at_checked(HEADER)?;
        let (kind, head) = head.split_first()?;
        let (pass, head) = head.split_first()?;
        let kind = *[Kind::Data, Kind::Stop, Kind::Part, Kind::Verdict].get(usize::from(*kind))?;
        let (run, numbers) = head.split_first_chunk::<8>()?;
        let (numbers, _) = numbers.as_chunks::<4>();
        let [call, from, to] = numbers else { return None };
        let number = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes);
        let header = Self {
            kind,
            run: u64::from_le_bytes(*run),
            pass: *pass,
            call: number(call),
            from: number(from),
            to: number(to),
        };
        Some((header, rest))
    }
}

const COPIES: u8 = 0;
const SUMS: u8 = 1;

/// Appends what a rank sends.
pub(super) fn write_message(message: &Message, bytes: &mut Vec<u8>) {
    match message {
        Message::Copies(values) => {
            bytes.push(COPIES);
            values.iter().for_each(|x| bytes.extend(x.to_le_bytes()));
        }
        Message::Sums(sums) => {
            bytes.push(SUMS);
            for sum in sums {
                bytes.extend((sum.values.len() as u32).to_le_bytes());
                bytes.push(u8::from(sum.lse.is_some()));
                sum.values.iter().chain(&sum.lse).for_each(|x| bytes.extend(x.to_le_bytes()));
            }
        }
    }
}

/// What a rank has sent; none for bytes that [`write_message`] does not write.
pub(super) fn read_message(bytes: &[u8]) -> Option<Message> {
    let (tag, mut rest) = bytes.split_first()?;
    if *tag == COPIES {
        let (values, left) = rest.as_chunks::<4>();
        return left.is_empty().then(|| Message::Copies(values.iter().map(|x| f32::from_le_bytes(*x)).collect()));
    }
    let mut sums = Vec::new();
    while !rest.is_empty() {
        let (len, after) = rest.split_first_chunk::<4>()?;
        let (has_lse, after) = after.split_first()?;
        let len = u32::from_le_bytes(*len) as usize;
        let (values, after) = after.split_at_checked((len + usize::from(*has_lse == 1)).checked_mul(8)?)?;
        let (values, _) = values.as_chunks::<8>();
        let mut values: Vec<f64> = values.iter().map(|x| f64::from_le_bytes(*x)).collect();
        let lse = (*has_lse == 1).then(|| values.pop()).flatten();
        sums.push(Contribution { values, lse });
        rest = after;
    }
    (*tag == SUMS).then_some(Message::Sums(sums))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let header = Header { kind: Kind::Part, run: u64::MAX - 1, pass: 1, call: 7, from: 3, to: u32::MAX };
        let mut bytes = header.write();
        let sums = vec![
            Contribution { values: vec![1.5, -0.0], lse: Some(f64::NEG_INFINITY) },
            Contribution { values: vec![], lse: None },
        ];
        write_message(&Message::Sums(sums), &mut bytes);
        let (found, rest) = Header::read(&bytes).expect("a header");
        assert_eq!(found, header);
        let Some(Message::Sums(sums)) = read_message(rest) else { panic!("no sums") };
        assert_eq!((sums[0].lse, sums[1].lse, sums.len()), (Some(f64::NEG_INFINITY), None, 2));
        assert_eq!(sums[0].values[1].to_bits(), (-0.0f64).to_bits());
        let mut bytes = Vec::new();
        write_message(&Message::Copies(vec![f32::from_bits(0x7fc5_0001), 2.0]), &mut bytes);
        let Some(Message::Copies(values)) = read_message(&bytes) else { panic!("no copies") };
        assert_eq!(values[0].to_bits(), 0x7fc5_0001);
    }

    proptest! {
        #[test]
        fn no_bytes_are_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = Header::read(&bytes);
            let _ = read_message(&bytes);
        }
    }
}
