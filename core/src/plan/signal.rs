//! The signals that end a process which does nothing about them (signal(7), by Linux's numbers). Not SIGPIPE,
//! which Python ignores.

use serde::{Deserialize, Serialize};

macro_rules! deadly {
    ($($variant:ident $number:literal $name:literal $doc:literal),* $(,)?) => {
        /// A signal that ends the process, by its name: `SIGTERM`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Deadly {
            $(#[doc = $doc] #[serde(rename = $name)] $variant,)*
        }

        impl Deadly {
            /// All of them.
            pub const ALL: &[Deadly] = &[$(Deadly::$variant),*];

            /// Its number.
            pub fn number(self) -> i32 {
                match self { $(Deadly::$variant => $number,)* }
            }

            /// Its name: `SIGTERM`.
            pub fn name(self) -> &'static str {
                match self { $(Deadly::$variant => $name,)* }
            }

            /// An executor's words for the end of a rank that was sent it on purpose.
            pub fn how_it_ends(self) -> &'static str {
                match self {
                    $(Deadly::$variant => {
                        concat!("killed by signal ", $number, " (", $name, "), an injected fault")
                    })*
                }
            }
        }
    };
}

deadly! {
    Hangup 1 "SIGHUP" "Its terminal is gone.",
    Interrupt 2 "SIGINT" "Ctrl-C.",
    Quit 3 "SIGQUIT" "Ctrl-\\\\.",
    Illegal 4 "SIGILL" "An instruction that is none.",
    Abort 6 "SIGABRT" "`abort()`, as a failed assertion calls it.",
    Bus 7 "SIGBUS" "Memory that is not behind its address, such as a full /dev/shm.",
    Arithmetic 8 "SIGFPE" "A division of integers by 0.",
    Kill 9 "SIGKILL" "`kill -9`, and the kernel when memory runs out.",
    User1 10 "SIGUSR1" "Free to use.",
    Segment 11 "SIGSEGV" "An address that is none.",
    User2 12 "SIGUSR2" "Free to use.",
    Alarm 14 "SIGALRM" "`alarm()`.",
    Terminate 15 "SIGTERM" "`kill`, and what launchers send first.",
}

/// A signal that a plan can send to a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalKind {
    /// SIGKILL.
    Kill,
    /// SIGSTOP, and SIGCONT after so many milliseconds, if that is given.
    Stop {
        /// The time in milliseconds until it continues; for ever if absent.
        #[serde(default)]
        for_ms: Option<u64>,
    },
    /// One that ends the process as SIGKILL does. Behind the others, whose places in the binary form are older.
    End(Deadly),
}

impl SignalKind {
    /// The signal that ends the process, if it does.
    pub fn deadly(self) -> Option<Deadly> {
        match self {
            SignalKind::Kill => Some(Deadly::Kill),
            SignalKind::End(deadly) => Some(deadly),
            SignalKind::Stop { .. } => None,
        }
    }
}
