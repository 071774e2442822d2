//! Programs whose ranks run in several processes leave the same bits as in one; processes are threads here, what they send each
//! other are bytes.

mod support;

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use skewbench_cpu::{CpuError, Inputs, Outputs, Processes, Report, RunOptions, Transport, compare, reference, run};
use skewbench_exec::{InstrKind, Program};
use support::{hard_cases, inputs, lowered, of_planners, shape};

struct Threads {
    process: u32,
    to: Vec<Sender<Vec<u8>>>,
    from: Mutex<Receiver<Vec<u8>>>,
    /// Messages after which this process is silent.
    silent_after: Option<u32>,
    sent: Mutex<u32>,
}

fn group(processes: u32) -> Vec<Threads> {
    let (to, from): (Vec<_>, Vec<_>) = (0..processes).map(|_| channel()).unzip();
    let of = |(process, from)| Threads {
        process,
        to: to.clone(),
        from: Mutex::new(from),
        silent_after: None,
        sent: Mutex::new(0),
    };
    (0..processes).zip(from).map(of).collect()
}

impl Transport for Threads {
    fn process(&self) -> u32 {
        self.process
    }

    fn processes(&self) -> u32 {
        self.to.len() as u32
    }

    fn name(&self, process: u32) -> String {
        format!("rank {process} on n{process}")
    }

    fn send(&self, to: u32, message: &[u8]) -> Result<(), String> {
        let mut sent = self.sent.lock().unwrap();
        *sent += 1;
        if self.silent_after.is_some_and(|after| *sent > after) {
            return Ok(());
        }
        self.to[to as usize].send(message.to_vec()).map_err(|e| e.to_string())
    }

    fn receive(&self, patience: Duration) -> Result<Option<Vec<u8>>, String> {
        match self.from.lock().unwrap().recv_timeout(patience) {
            Ok(message) => Ok(Some(message)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err("all others have ended".to_owned()),
        }
    }
}

/// Runs programs one after another in all processes of a group: what each says of each, and the results that the first shows.
fn together(
    group: &[Threads],
    work: &[(Program, Inputs)],
    options: &RunOptions,
) -> (Vec<Vec<Result<Report, String>>>, Vec<Outputs>) {
    let shown = Mutex::new(Vec::new());
    let all = std::thread::scope(|scope| {
        let of = |threads: &'_ Threads| {
            let processes = Processes::new(threads);
            let one = |(program, inputs): &(Program, Inputs)| {
                let show = |outputs: &Outputs| shown.lock().unwrap().push(outputs.clone());
                processes.measure_with(program, inputs, options, show).map_err(|e: CpuError| e.to_string())
            };
            work.iter().map(one).collect::<Vec<_>>()
        };
        let threads: Vec<_> = group.iter().map(|threads| scope.spawn(move || of(threads))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    (all, shown.into_inner().unwrap())
}

fn tables(outputs: &Outputs) -> Vec<u32> {
    let all = [&outputs.o, &outputs.lse, &outputs.dq, &outputs.dk, &outputs.dv];
    all.into_iter().flat_map(|table| (0..2).flat_map(|seq| table.sequence(seq))).map(|x| x.to_bits()).collect()
}

#[test]
fn results_are_those_of_one_process_bit_by_bit() {
    let documents: [&[u32]; 2] = [&[70, 1, 29], &[60, 9]];
    let shape = shape(4, 2, 8);
    let plans = of_planners(&documents, 3, shape).into_iter().chain(hard_cases(documents, 3, shape));
    let work: Vec<(Program, Inputs)> = plans.map(|plan| (lowered(&plan).unwrap(), inputs(&plan, 3))).collect();
    let options = RunOptions::default();
    let alone: Vec<Outputs> = work.iter().map(|(program, inputs)| run(program, inputs, &options).unwrap()).collect();
    for processes in [1, 2, 4, 9] {
        let (said, shown) = together(&group(processes), &work, &options);
        assert_eq!((said.len(), shown.len()), (processes as usize, alone.len()));
        for (i, (ours, alone)) in shown.iter().zip(&alone).enumerate() {
            assert!(tables(ours) == tables(alone), "program {i} on {processes} processes");
            let report = compare(&work[i].1, alone, &reference::attention(&work[i].1));
            assert!(said.iter().all(|said| said[i].as_ref() == Ok(&report)), "program {i} on {processes} processes");
        }
    }
}

#[test]
fn all_processes_learn_why_a_program_does_not_run_and_go_on() {
    let plan = &of_planners(&[&[40, 9], &[30]], 4, shape(4, 2, 8))[0];
    let (right, inputs) = (lowered(plan).unwrap(), inputs(plan, 1));
    let mut wrong = right.clone();
    // The last rank packs nothing for a call and merges what no launch has left: it finds that itself, and its peers wait for it.
    let streams = &mut wrong.forward.ranks.last_mut().unwrap().streams;
    let packs = streams.iter_mut().flatten().filter(|instr| matches!(instr.kind, InstrKind::Pack { .. }));
    assert!(packs.map(|instr| instr.kind = InstrKind::MergeLocal { bytes: 1 }).count() > 0);
    let work = [(wrong, inputs.clone()), (right, inputs)];
    let (said, _) =
        together(&group(3), &work, &RunOptions { patience: Duration::from_secs(3), ..RunOptions::default() });
    let first = said[0][0].as_ref().unwrap_err();
    assert!(first.starts_with("forward, rank 3, ") && first.contains("met none"), "{first}");
    for said in &said {
        assert_eq!(said[0].as_ref().unwrap_err(), first);
        assert!(said[1].is_ok(), "{said:?}");
    }
}

/// A process that hangs in its computation: what connects it to the others may well live.
#[test]
fn a_process_that_hangs_is_named_by_all_in_time() {
    let plan = &of_planners(&[&[40, 9], &[30]], 4, shape(4, 2, 8))[0];
    let work = [(lowered(plan).unwrap(), inputs(plan, 1))];
    let patience = Duration::from_secs(4);
    // Before its first message, and before its results.
    for (hangs, silent_after) in [(1, 0), (0, 0), (2, 1)] {
        let mut group = group(3);
        group[hangs].silent_after = Some(silent_after);
        let began = Instant::now();
        let (said, _) = together(&group, &work, &RunOptions { patience, ..RunOptions::default() });
        // The others know after one and a half of their patience.
        assert!(began.elapsed() < 2 * patience, "{:?}", began.elapsed());
        for (process, said) in said.iter().enumerate().filter(|(process, _)| *process != hangs) {
            let error = said[0].as_ref().unwrap_err();
            let named = format!("rank {hangs} on n{hangs} has not sent ");
            assert!(error.contains(&named) && error.contains("it hangs or is gone"), "process {process}: {error}");
        }
    }
}
