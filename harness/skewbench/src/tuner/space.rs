use serde_json::{Map, Value};
use skewbench_systems::{OptionSpec, Options};

use super::Point;

/// An option that is searched.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Option.
    pub name: &'static str,
    /// Its values, numbers in ascending order.
    pub values: Vec<Value>,
    /// Position of the value that the search starts from.
    pub start: usize,
}

/// The configurations of a system that a search may try.
#[derive(Clone, Debug, PartialEq)]
pub struct Space {
    /// Options with at least two values, in the order of the registry.
    pub axes: Vec<Axis>,
}

impl Space {
    /// The space around the options that a system has now; options named in `keep` are left alone. A pool beyond the `dp`
    /// data-parallel ranks is the pool of all of them, so larger ones are left out.
    pub fn around(specs: &[OptionSpec], now: &Options, keep: &[String], dp: u32) -> Self {
        let kept = |spec: &OptionSpec| keep.iter().any(|k| k == spec.name || Some(k.as_str()) == spec.alias);
        let axes = specs.iter().filter(|spec| !kept(spec)).filter_map(|spec| {
            let start = now.values().get(spec.name)?.clone();
            let mut values = spec.candidates();
            if values.is_empty() {
                return None;
            }
            if spec.name == "pool" {
                values.retain(|v| v.as_u64().is_some_and(|pool| pool <= u64::from(dp)));
            }
            if !values.iter().any(|v| same(v, &start)) {
                let below = |v: &&Value| v.as_f64().zip(start.as_f64()).is_some_and(|(v, start)| v < start);
                let position = values.iter().take_while(|v| v.is_string() && start.is_number() || below(v)).count();
                values.insert(position, start.clone());
            }
            let start = values.iter().position(|v| same(v, &start))?;
            (values.len() > 1).then_some(Axis { name: spec.name, values, start })
        });
        Self { axes: axes.collect() }
    }

    /// Where a search starts.
    pub fn start(&self) -> Point {
        self.axes.iter().map(|axis| axis.start).collect()
    }

    /// Options and values of a point.
    pub fn options(&self, point: &Point) -> Map<String, Value> {
        let values = self.axes.iter().zip(point);
        values.filter_map(|(axis, at)| Some((axis.name.to_owned(), axis.values.get(*at)?.clone()))).collect()
    }
}

fn same(a: &Value, b: &Value) -> bool {
    a == b || a.as_f64().zip(b.as_f64()).is_some_and(|(a, b)| a == b)
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};
    use skewbench_systems::registry::{describe, system};

    use super::Space;

    fn space(name: &str, options: serde_json::Value, keep: &[&str], dp: u32) -> Space {
        let options: Map<_, _> = options.as_object().cloned().unwrap_or_default();
        let now = system(name, &options).expect("a system");
        let keep: Vec<String> = keep.iter().map(|k| (*k).to_owned()).collect();
        Space::around(&describe(name).expect("a system").options, now.options(), &keep, dp)
    }

    #[test]
    fn spaces_start_from_what_is_given() {
        let libra = space("libra", json!({ "tau": 0.05, "block": 3000, "P": 2 }), &["work", "M"], 4);
        let names: Vec<&str> = libra.axes.iter().map(|a| a.name).collect();
        assert_eq!(names, ["pool", "deal", "tau", "block", "head_shards"]);
        let of = |name: &str| libra.axes.iter().find(|a| a.name == name).expect("an axis");
        assert_eq!((&of("pool").values, of("pool").start), (&vec![json!(1), json!(2), json!(4)], 1));
        assert_eq!((of("tau").values.len(), of("tau").start, &of("tau").values[3]), (6, 3, &json!(0.05)));
        assert_eq!((&of("block").values[3], of("block").start), (&json!(3000), 3));
        let start = libra.options(&libra.start());
        assert_eq!((&start["tau"], &start["pool"], start.len()), (&json!(0.05), &json!(2), 5));
    }

    #[test]
    fn what_is_semantic_is_not_searched() {
        let names = |name: &str| space(name, json!({}), &[], 8).axes.iter().map(|a| a.name).collect::<Vec<_>>();
        assert_eq!(names("ulysses"), ["pool"]);
        assert!(!names("libra").contains(&"resend"));
        assert!(space("ulysses", json!({}), &["pool"], 8).axes.is_empty());
        assert_eq!(space("ulysses", json!({}), &[], 1).start().len(), 1, "8 stays where 1 rank leaves no other pool");
    }
}
