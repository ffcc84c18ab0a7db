//! `shell`: reads lines and runs each like a command line of its own, with one connection for all of them.
//!
//! A line is a command of ours without the word `terrane`, or a line as HBase's shell takes it ([`hbase`]). Both become the
//! words of our grammar, so whatever a command does at the command line it does here. Nothing connects before the first
//! command needs it, so the prompt appears at once even when the cluster is away.
//!
//! At a terminal, lines are edited, completed and remembered ([`editor`], [`completion`]); a failure is shown and the next
//! line is read. From `--execute` or standard input, the first failure ends the session with its exit status.

mod completion;
mod editor;
mod habits;
mod hbase;
mod help;
mod names;
mod ruby;
mod words;

use std::io::{BufRead, IsTerminal};
use std::pin::pin;
use std::time::Duration;

use clap::{CommandFactory, ValueEnum};
use terrane_client::Error;
use terrane_env::task::{run_blocking, shutdown_signal};
use terrane_hbase::name_pattern::NamePattern;
use terrane_types::{closest, escape_family};
use tokio::time::Instant;

use crate::args::client::{Connection, TimeForm};
use crate::args::shell::{Shell, ShellFormat};
use crate::args::{Cli, Command, mistake, parse};
use crate::commands;
use crate::failure::{During, Exit, Failure};
use crate::output::{Output, duration_text};
use crate::scope::{self, Scope};
use hbase::{Action, with_attributes};
use names::Names;

/// Commands of ours that do not belong in a session: they run until they are stopped, or would nest.
const OUTSIDE: &[&str] = &["dev", "master", "server", "shell"];
/// How long the answer to a line of another grammar waits for what the table declares.
const ASKED_FOR_MAX: Duration = Duration::from_secs(1);
/// What to do about a statement that no line says.
const SQL_ADVICE: &str = "scan, count, aggregate and latest read rows, put and delete write them: `help scan` shows examples, and \
                          docs/coming-from.md has SQL's habits";
/// Commands that print a summary when Ctrl-C stops them.
const SUMMED_UP: &[&str] = &["bench", "import"];
/// Commands of the shell itself, with what they do.
const OWN: &[(&str, &str)] = &[
    ("exit", "exit [STATUS]: end the session; Ctrl-D does, too"),
    ("format", "format table|row|json: how results are shown"),
    ("help", "help [COMMAND]"),
    ("quit", "quit [STATUS]: end the session"),
    ("time", "time auto|date|raw: show times as dates in UTC or as milliseconds; auto: dates at a terminal"),
    ("timing", "timing on|off: show how long commands take"),
];

pub async fn run(args: Shell) -> Result<(), Failure> {
    let at_terminal = args.execute.is_empty() && std::io::stdin().is_terminal();
    let mut session = Session::new(&args, at_terminal);
    if at_terminal {
        return editor::run(&mut session).await;
    }
    if !args.execute.is_empty() {
        for (number, line) in (1..).zip(&args.execute) {
            if let LineOutcome::Exit(status) = session.script_line(number, line).await? {
                return session.ended(status);
            }
        }
        return session.ended(None);
    }
    for number in 1.. {
        let Some(line) = next_line().await? else { break };
        if let LineOutcome::Exit(status) = session.script_line(number, &line).await? {
            return session.ended(status);
        }
    }
    session.ended(None)
}

/// What to type at the command line instead of these words of another grammar; nothing is known of the tables.
pub fn advice(words: &[String]) -> Option<String> {
    let line = words.iter().map(|word| if word.contains(' ') { format!("'{word}'") } else { word.clone() });
    let line = line.collect::<Vec<_>>().join(" ");
    let lines = habits::lines(&line, None).or_else(|| match hbase::translate(&line)?.ok()? {
        Action::Run(words) => {
            let words = words.iter().filter(|word| *word != "--").map(habits::word);
            Some(vec![words.collect::<Vec<_>>().join(" ")])
        }
        Action::Exists(table) | Action::IsDisabled { table, .. } => Some(vec![format!("table describe {table}")]),
        Action::Drop(table) => Some(vec![format!("table drop {table}")]),
        Action::List(_) => Some(vec!["table list".to_owned()]),
        Action::Counter(words) => Some(vec![words.join(" ")]),
        Action::Alter { .. } => None,
    })?;
    Some(habits::advice(&lines, "terrane "))
}

/// The next line of standard input; `None` at its end.
async fn next_line() -> Result<Option<String>, Failure> {
    // The read may wait for another program, which must not block a thread of the runtime.
    let (read, line) = run_blocking(|| {
        let mut line = String::new();
        (std::io::stdin().lock().read_line(&mut line), line)
    })
    .await;
    Ok((read.map_err(unreadable)? > 0).then_some(line))
}

fn unreadable(error: std::io::Error) -> Failure {
    Failure::new(format!("cannot read standard input: {error}"))
}

/// Whether the session goes on after a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineOutcome {
    Continue,
    /// It ends, with this status if the line says one.
    Exit(Option<u8>),
}

/// What lives from one line to the next.
struct Session {
    connection: Connection,
    scope: Scope,
    format: ShellFormat,
    time: TimeForm,
    timing: bool,
    keep_going: bool,
    names: Names,
    failed: Option<Exit>,
}

impl Session {
    fn new(args: &Shell, at_terminal: bool) -> Session {
        let scope = Scope { masters: args.connection.masters.to_string(), ..Scope::default() };
        let format = if args.connection.json { ShellFormat::Json } else { args.format };
        Session {
            names: Names::new(args.connection.clone(), scope.clone()),
            connection: args.connection.clone(),
            scope,
            format,
            time: args.times.time,
            timing: args.timing || at_terminal,
            keep_going: args.keep_going || at_terminal,
            failed: None,
        }
    }

    /// Runs a line of a script. A failure ends the script, unless the session keeps going.
    async fn script_line(&mut self, number: u64, line: &str) -> Result<LineOutcome, Failure> {
        match self.line(line).await {
            Err(failure) if self.keep_going => {
                failure.in_shell().during(format!("line {number}")).print();
                Ok(LineOutcome::Continue)
            }
            Err(failure) => Err(failure.in_shell().during(format!("line {number}"))),
            done => done,
        }
    }

    /// The result of the session: the status that its last line asked for, or the last failure's; the failure has been printed.
    fn ended(&self, asked: Option<u8>) -> Result<(), Failure> {
        let asked = asked.map(|status| if status == 0 { None } else { Some(Exit::Asked(status)) });
        match asked.unwrap_or(self.failed) {
            Some(exit) => Err(Failure::printed(exit)),
            None => Ok(()),
        }
    }

    /// Runs one line.
    async fn line(&mut self, line: &str) -> Result<LineOutcome, Failure> {
        let line = line.trim().trim_end_matches(';').trim_end();
        if line.is_empty() || line.starts_with('#') {
            return Ok(LineOutcome::Continue);
        }
        let started = Instant::now();
        let done = self.dispatch(line).await;
        if let Err(failure) = &done {
            self.failed = Some(failure.exit);
        }
        if self.timing && matches!(done, Ok(LineOutcome::Continue)) {
            eprintln!("took {}", duration_text(started.elapsed()));
        }
        done
    }

    async fn dispatch(&mut self, line: &str) -> Result<LineOutcome, Failure> {
        let words = words::split(line).map_err(|invalid| Failure::usage(invalid.to_string()));
        if let Ok(words) = &words {
            match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["exit" | "quit"] => return Ok(LineOutcome::Exit(None)),
                ["exit" | "quit", status] => {
                    let status = status.parse().map_err(|_| {
                        Failure::usage(format!("{status:?} is not an exit status, which is a number from 0 to 255"))
                    })?;
                    return Ok(LineOutcome::Exit(Some(status)));
                }
                ["help"] => return help::overview().map(|()| LineOutcome::Continue),
                ["help", ref of @ ..] => return help::of(of).map(|()| LineOutcome::Continue),
                ["format"] => return said(&format!("format {}", name_of(self.format))),
                ["format", format] => {
                    self.format = ShellFormat::from_str(format, true)
                        .map_err(|_| Failure::usage(format!("{format:?} is not a format; it is table, row or json")))?;
                    return Ok(LineOutcome::Continue);
                }
                ["time"] => return said(&format!("time {}", self.time.name())),
                ["time", form] => {
                    self.time = TimeForm::from_str(form, true).map_err(|_| {
                        Failure::usage(format!("{form:?} is not a form of times; it is auto, date or raw"))
                    })?;
                    return Ok(LineOutcome::Continue);
                }
                ["timing", switch @ ("on" | "off")] => {
                    self.timing = switch == "on";
                    return Ok(LineOutcome::Continue);
                }
                ["timing", ..] => return Err(Failure::usage("timing is `timing on` or `timing off`")),
                _ => {}
            }
        }
        if habits::is_sql(line) {
            return Err(self.instead(line).await);
        }
        let action = match hbase::translate(line) {
            None if self.is_unknown(line) => return Err(self.instead(line).await),
            Some(translated) => translated.map_err(|invalid| Failure::usage(invalid.to_string()))?,
            None => Action::Run(words?),
        };
        // Ctrl-C ends the command and not the session. What it has written so far stays. A command that ends by itself then,
        // with a summary, may do so until Ctrl-C is pressed once more.
        let has_summary = matches!(&action, Action::Run(words) if words.first().is_some_and(|word| SUMMED_UP.contains(&word.as_str())));
        let mut acting = pin!(self.act(action));
        let interrupted = || Err(Failure::interrupted().advise("what was written before stays"));
        tokio::select! {
            biased;
            () = shutdown_signal() => {
                if !has_summary {
                    return interrupted();
                }
            }
            done = &mut acting => return done.map(|()| LineOutcome::Continue),
        }
        tokio::select! {
            biased;
            () = shutdown_signal() => interrupted(),
            done = acting => done.map(|()| LineOutcome::Continue),
        }
    }

    async fn act(&mut self, action: Action) -> Result<(), Failure> {
        match action {
            Action::Run(words) => self.command(words).await,
            Action::List(pattern) => self.list(&pattern).await,
            Action::Counter(words) => {
                let line = self.with_flags(&Cli::command(), words);
                match parse(line.into_iter().map(Into::into).collect()) {
                    Ok(Cli { command: Command::Get(args), .. }) => {
                        scope::within(self.scope.clone(), Box::pin(commands::data::counter(args))).await
                    }
                    Ok(_) => Err(Failure::usage("get_counter takes a table, a row and a column")),
                    Err(error) => Err(Failure::usage(mistake(&error, true))),
                }
            }
            Action::Exists(table) => {
                let exists = self.described(&table).await?.is_some();
                said(&format!("table {table} {}", if exists { "exists" } else { "does not exist" })).map(drop)
            }
            Action::IsDisabled { table, asked_enabled } => {
                let disabled = self.must_exist(&table).await?.schema.disabled;
                said(if disabled == asked_enabled { "false" } else { "true" }).map(drop)
            }
            Action::Drop(table) => {
                if !self.must_exist(&table).await?.schema.disabled {
                    return Err(Failure::new(format!("table {table} is enabled; nothing was dropped"))
                        .advise(format!("disable it first: disable '{table}'; or `table drop {table}`")));
                }
                self.command(vec!["table".to_owned(), "drop".to_owned(), table, "--yes".to_owned()]).await
            }
            Action::Alter { table, families, drop, set } => {
                let known = self.must_exist(&table).await?;
                let mut words = vec!["table".to_owned(), "alter".to_owned(), table];
                for (family, attributes) in families {
                    let flag = match known.schema.family(family.as_bytes()) {
                        None => "add-family",
                        Some(_) if attributes.is_empty() => {
                            return Err(Failure::new(format!(
                                "the table has family {} already",
                                escape_family(family.as_bytes())
                            )));
                        }
                        Some(_) => "family",
                    };
                    words.push(format!("--{flag}={}", with_attributes(&family, &attributes)));
                }
                let dropped =
                    drop.into_iter().map(|family| format!("--drop-family={}", escape_family(family.as_bytes())));
                words.extend(dropped);
                words.extend(set.into_iter().map(|attribute| format!("--set={attribute}")));
                self.command(words).await
            }
        }
    }

    /// Whether the first word is neither a command nor a slip of one.
    fn is_unknown(&self, line: &str) -> bool {
        let verb = verb_of(line);
        Cli::command().find_subcommand(verb).is_none() && !OUTSIDE.contains(&verb)
    }

    /// The refusal of a line of another grammar, with the line to type instead.
    async fn instead(&self, line: &str) -> Failure {
        let verb = verb_of(line);
        let table = habits::table_of(line);
        let schema = match &table {
            // The line is wrong in any case, so its answer waits for the cluster only so long.
            Some(table) => match tokio::time::timeout(ASKED_FOR_MAX, self.described(table)).await {
                Ok(Ok(info)) => info.map(|info| info.schema),
                Ok(Err(_)) | Err(_) => None,
            },
            None => None,
        };
        let lines = match self.for_each_table(line).await {
            Some(lines) => Some(lines),
            None => habits::lines(line, schema.as_ref()),
        };
        match lines {
            Some(lines) => {
                Failure::usage(format!("there is no command {verb:?} here")).advise(habits::advice(&lines, ""))
            }
            None if habits::is_sql(line) => {
                Failure::usage(format!("{verb:?} of this form has no equal here")).advise(SQL_ADVICE)
            }
            None => unknown(verb),
        }
    }

    /// `disable_all 'regex'` and its like, as a line for each table.
    async fn for_each_table(&self, line: &str) -> Option<Vec<String>> {
        let verbs: &[&str] = match verb_of(line) {
            "disable_all" => &["disable"],
            "enable_all" => &["enable"],
            "drop_all" => &["disable", "drop"],
            _ => return None,
        };
        let arguments = ruby::arguments(line[verb_of(line).len()..].trim()).ok()?;
        let pattern = NamePattern::new(arguments.first()?.text().ok()?).ok()?;
        let listed = async {
            let client = scope::within(self.scope.clone(), commands::connect(&self.connection)).await.ok()?;
            client.admin().list_tables().await.ok()
        };
        let tables = tokio::time::timeout(ASKED_FOR_MAX, listed).await.ok()??;
        let found = tables.iter().filter(|table| pattern.matches(&table.schema.name).unwrap_or(false));
        let lines = found.flat_map(|table| verbs.iter().map(move |verb| format!("{verb} '{}'", table.schema.name)));
        Some(lines.collect::<Vec<_>>()).filter(|lines| !lines.is_empty())
    }

    /// Lists the tables whose names the regular expression matches as a whole, as HBase's shell does.
    async fn list(&self, pattern: &str) -> Result<(), Failure> {
        let refused = |why: terrane_types::Invalid| Failure::usage(format!("list {pattern:?}: {}", why.what));
        let names = NamePattern::new(pattern).map_err(refused)?;
        let client = scope::within(self.scope.clone(), commands::connect(&self.connection)).await?;
        let tables = client.admin().list_tables().await.during("list the tables")?;
        let mut found = Vec::new();
        for table in &tables {
            if names.matches(&table.schema.name).map_err(refused)? {
                found.push(table.schema.name.to_string());
            }
        }
        if found.is_empty() {
            return Err(Failure::new(format!("no table's name matches {pattern:?}")).advise("`list` lists all tables"));
        }
        found.iter().try_for_each(|name| said(name).map(drop))
    }

    async fn described(&self, table: &str) -> Result<Option<terrane_client::TableInfo>, Failure> {
        let client = scope::within(self.scope.clone(), commands::connect(&self.connection)).await?;
        match client.admin().describe_table(table).await {
            Ok(info) => Ok(Some(info)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error).during(format!("describe table {table}")),
        }
    }

    async fn must_exist(&self, table: &str) -> Result<terrane_client::TableInfo, Failure> {
        match self.described(table).await? {
            Some(info) => Ok(info),
            None => {
                let client = scope::within(self.scope.clone(), commands::connect(&self.connection)).await?;
                Err(commands::no_table(&client, table).await)
            }
        }
    }

    /// Runs the words of a command of ours.
    async fn command(&mut self, words: Vec<String>) -> Result<(), Failure> {
        let root = Cli::command();
        let first = words.first().map_or("", String::as_str);
        if OUTSIDE.contains(&first) {
            return Err(Failure::usage(format!("`{first}` does not run in the shell: start it in another terminal")));
        }
        if root.find_subcommand(first).is_none() {
            return Err(unknown(first));
        }
        let line = self.with_flags(&root, words);
        let cli = match parse(line.into_iter().map(Into::into).collect()) {
            Ok(cli) => cli,
            // Help goes to standard output; a mistake is shown with its usage, as at the command line.
            Err(error) if !error.use_stderr() => return said(error.to_string().trim_end()).map(drop),
            Err(error) => return Err(Failure::usage(mistake(&error, true))),
        };
        let changes_names = matches!(cli.command, Command::Table(_) | Command::Namespace(_));
        let scope = Scope { as_records: self.format == ShellFormat::Row, ..self.scope.clone() };
        let done = scope::within(scope, Box::pin(commands::run(cli.command))).await;
        if changes_names {
            self.names.refresh();
        }
        done
    }

    /// The line with the session's masters, timeout and format, unless it has its own.
    fn with_flags(&self, root: &clap::Command, words: Vec<String>) -> Vec<String> {
        let (mut command, mut depth) = (root, 0);
        while let Some(found) = words.get(depth).and_then(|word| command.find_subcommand(word)) {
            (command, depth) = (found, depth + 1);
        }
        let takes = |name: &str| command.get_arguments().any(|arg| arg.get_long() == Some(name));
        let has = |name: &str| {
            let flag = format!("--{name}");
            words.iter().take_while(|word| *word != "--").any(|word| word.split('=').next() == Some(&flag))
        };
        let mut flags = Vec::new();
        if takes("masters") && !has("masters") {
            flags.push(format!("--masters={}", self.connection.masters));
        }
        if takes("timeout") && !has("timeout") {
            flags.push(format!("--timeout={}ms", self.connection.timeout.as_millis()));
        }
        if takes("json") && !has("json") && self.format == ShellFormat::Json {
            flags.push("--json".to_owned());
        }
        if takes("time") && !has("time") && self.time != TimeForm::Auto {
            flags.push(format!("--time={}", self.time.name()));
        }
        let mut line = vec!["terrane".to_owned()];
        line.extend(words);
        line.splice(1 + depth..1 + depth, flags);
        line
    }
}

/// The first word of a line.
fn verb_of(line: &str) -> &str {
    let line = line.trim_start();
    &line[..line.find(|c: char| c.is_whitespace() || c == '(').unwrap_or(line.len())]
}

fn unknown(word: &str) -> Failure {
    let root = Cli::command();
    let ours = root.get_subcommands().map(clap::Command::get_name).filter(|name| !OUTSIDE.contains(name));
    let known = ours.chain(hbase::VERBS.iter().map(|(verb, _)| *verb)).chain(OWN.iter().map(|(name, _)| *name));
    let failure = Failure::usage(format!("there is no command {word:?}"));
    if let Some((_, instead)) = hbase::WITHOUT_EQUAL.iter().find(|(verb, _)| *verb == word) {
        return failure.advise(*instead);
    }
    match closest(&word.to_ascii_lowercase(), known) {
        Some(meant) => failure.advise(format!("did you mean {meant}? `help {meant}` shows an example")),
        None => failure.advise("`help` lists the commands"),
    }
}

fn name_of(format: ShellFormat) -> &'static str {
    match format {
        ShellFormat::Table => "table",
        ShellFormat::Row => "row",
        ShellFormat::Json => "json",
    }
}

fn said(line: &str) -> Result<LineOutcome, Failure> {
    let mut output = Output::new(false);
    output.line(line)?;
    output.flush()?;
    Ok(LineOutcome::Continue)
}
