//! The child's end of a side: obeys the parent's lines until they end.
//!
//! The child prints `ready DETAIL` when its memory is set up and touched. It answers `run VARIANT` with `done SECONDS
//! AMOUNT`, `verify` with `ok`, and any failure with `error MESSAGE`. It ends at the end of its input, which is also
//! what it sees when the parent dies.

use std::{
    io::{self, BufRead, Write},
    time::Duration,
};

/// One timing: the time taken, and the amount of bytes or operations done in it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The time taken.
    pub elapsed: Duration,
    /// The bytes or operations done.
    pub amount: u64,
}

impl Sample {
    /// Amount per second.
    pub fn rate(self) -> f64 {
        self.amount as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// One side of a comparison, inside its own process.
pub trait Measured {
    /// One line for the parent, once this side is ready.
    fn detail(&self) -> String {
        String::new()
    }

    /// Does the work once and times it. `variant` chooses a way to do it, where a side has several.
    fn run(&mut self, variant: u64) -> io::Result<Sample>;

    /// Checks every byte of the last run and wipes the destination, so that the next check cannot pass on old bytes.
    fn verify(&mut self) -> io::Result<()>;
}

/// Serves `side` on these pipes until the input ends.
pub fn serve(side: &mut dyn Measured, input: impl BufRead, mut output: impl Write) -> io::Result<()> {
    writeln!(output, "ready {}", side.detail())?;
    output.flush()?;
    for line in input.lines() {
        match answer(side, &line?) {
            Ok(text) => writeln!(output, "{text}")?,
            Err(error) => writeln!(output, "error {}", error.to_string().replace('\n', " "))?,
        }
        output.flush()?;
    }
    Ok(())
}

fn answer(side: &mut dyn Measured, line: &str) -> io::Result<String> {
    let unknown = || io::Error::other(format!("unknown command {line:?}"));
    match line.split_once(' ') {
        Some(("run", variant)) => {
            let sample = side.run(variant.parse().map_err(|_| unknown())?)?;
            Ok(format!("done {:e} {}", sample.elapsed.as_secs_f64(), sample.amount))
        }
        None if line == "verify" => side.verify().map(|()| "ok".to_owned()),
        _ => Err(unknown()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Half;

    impl Measured for Half {
        fn run(&mut self, variant: u64) -> io::Result<Sample> {
            Ok(Sample { elapsed: Duration::from_millis(500), amount: variant })
        }

        fn verify(&mut self) -> io::Result<()> {
            Err(io::Error::other("two\nlines"))
        }
    }

    #[test]
    fn each_line_gets_one_line_as_answer() {
        let mut output = Vec::new();
        serve(&mut Half, &b"run 7\nverify\nrun\nrun x\nhello\n"[..], &mut output).unwrap();
        let output = String::from_utf8(output).unwrap();
        let lines: Vec<_> = output.lines().collect();
        assert_eq!(lines[..3], ["ready ", "done 5e-1 7", "error two lines"]);
        assert!(lines[3..].iter().all(|line| line.starts_with("error unknown command")), "{lines:?}");
        assert_eq!(lines.len(), 6);
    }
}
