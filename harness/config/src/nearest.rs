use strsim::damerau_levenshtein;

/// Longest name that is compared, in characters: time and memory of an edit distance grow with the product of both lengths.
const LONGEST: usize = 64;

/// The known name nearest to `name`, when it is near enough to be meant; the first of equally near ones.
///
/// Near are, whatever their case: at most as many edits (insertion, deletion, substitution, swap of neighbours) as half the
/// longer name has characters, for the whole name or for one of its words; and a name that the other one begins with.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = comparable(name)?;
    known
        .into_iter()
        .filter_map(|candidate| {
            let folded = comparable(candidate)?;
            let near = begins(&name, &folded)
                || slip(&name, &folded)
                || folded.split(['-', '_', '+', '/', '.']).any(|word| slip(&name, word));
            near.then(|| (damerau_levenshtein(&name, &folded), candidate))
        })
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// `, did you mean X?` with the known name nearest to `name`, or nothing when none is near.
pub fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known).map(|nearest| format!(", did you mean {nearest}?")).unwrap_or_default()
}

/// The name in lower case, unless it is too long to be a slip of a known one.
fn comparable(name: &str) -> Option<String> {
    name.chars().nth(LONGEST).is_none().then(|| name.to_lowercase())
}

fn slip(a: &str, b: &str) -> bool {
    damerau_levenshtein(a, b) * 2 <= a.chars().count().max(b.chars().count()) && !b.is_empty()
}

/// Whether one name begins with the other; a single letter says too little.
fn begins(a: &str, b: &str) -> bool {
    (a.starts_with(b) && b.chars().count() > 1) || (b.starts_with(a) && a.chars().count() > 1)
}
