//! Clients that read, write and swap registers.
//!
//! The search for an order costs more with every operation of unknown outcome, so a register is used for a while only, and
//! another one takes its slot then.

use parking_lot::Mutex;
use terrane_client::{Get, Put, Table, column};
use terrane_oracle::check::{Action, Answer};

use super::calls::{failed, written};
use super::{COLUMN, FAMILY, Worker, place};
use crate::chaos::value;

/// Registers in use at a time: few, so that calls meet.
const SLOTS: usize = 4;
/// Calls of one register.
const CALLS_MAX: u32 = 200;
/// Calls of one register with an unknown outcome.
const UNKNOWN_MAX: u32 = 5;
const PAUSE_MS: u64 = 60;

/// The registers in use.
#[derive(Debug, Default)]
pub struct Slots([Mutex<Slot>; SLOTS]);

#[derive(Debug, Default)]
struct Slot {
    /// Registers that the slot had before.
    generation: u64,
    calls: u32,
    unknown: u32,
    /// A value that the register had, for swaps.
    value: Option<String>,
}

impl Slot {
    fn register(&self, slot: usize) -> String {
        let number = self.generation * SLOTS as u64 + slot as u64;
        format!("{}-register-{number}", place(number))
    }
}

impl Slots {
    /// A register to call.
    fn pick(&self, slot: usize) -> (String, Option<String>) {
        let mut state = self.0[slot].lock();
        if state.calls >= CALLS_MAX || state.unknown >= UNKNOWN_MAX {
            *state = Slot { generation: state.generation + 1, ..Slot::default() };
        }
        state.calls += 1;
        (state.register(slot), state.value.clone())
    }

    fn note(&self, slot: usize, register: &str, answer: &Answer, value: Option<&str>) {
        let mut state = self.0[slot].lock();
        if state.register(slot) != register {
            return;
        }
        match answer {
            Answer::Unknown(_) => state.unknown += 1,
            Answer::Found(Some(found)) => state.value = Some(found.clone()),
            Answer::Written => state.value = value.map(str::to_owned),
            _ => {}
        }
    }

    /// All registers that were used.
    pub fn all(&self) -> Vec<String> {
        let of_slot = |(slot, state): (usize, &Mutex<Slot>)| {
            let last = state.lock().generation;
            (0..=last).map(move |generation| Slot { generation, ..Slot::default() }.register(slot))
        };
        self.0.iter().enumerate().flat_map(of_slot).collect()
    }
}

impl Worker {
    /// Uses registers until the load is over.
    pub async fn use_registers(mut self) {
        let mut number = 0;
        while !self.shared.is_over() {
            let slot = self.dice.below(SLOTS);
            let (register, known) = self.shared.registers.pick(slot);
            number += 1;
            let value = value::token(&self.name, number);
            let action = match (self.dice.below(10), known) {
                (0..=4, _) => Action::Read { register: register.clone() },
                (5 | 6, Some(from)) => Action::Swap { register: register.clone(), from, value: value.clone() },
                _ => Action::Write { register: register.clone(), value: value.clone() },
            };
            let table = self.table();
            let op = self.shared.history.call(action.clone());
            let answer = carry_out(&table, &action).await;
            self.shared.registers.note(slot, &register, &answer, Some(&value));
            self.shared.history.end(op, answer);
            self.pause(PAUSE_MS).await;
        }
    }
}

async fn carry_out(table: &Table, action: &Action) -> Answer {
    let put = |register: &str, value: &str| Put::new(register).set(FAMILY, COLUMN, value);
    match action {
        Action::Write { register, value } => written(table.put(put(register, value)).await),
        Action::Swap { register, from, value } => {
            let condition = column(FAMILY, COLUMN).equals(from.as_str());
            match table.check_and_put(condition, put(register, value)).await {
                Ok(true) => Answer::Written,
                Ok(false) => Answer::NotHeld,
                Err(error) => failed(error),
            }
        }
        Action::Read { register } => read(table, register).await.unwrap_or_else(failed),
        _ => Answer::Failed("no action of a register".to_owned()),
    }
}

/// Reads a register.
pub async fn read(table: &Table, register: &str) -> Result<Answer, terrane_client::Error> {
    let found = table.get(Get::new(register)).await?;
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    Ok(Answer::Found(found.and_then(|row| row.value(FAMILY, COLUMN).map(text))))
}
