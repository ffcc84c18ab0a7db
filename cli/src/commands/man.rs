//! `completions` and `man`: the grammar in the forms that shells and `man` read.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::{Cli, CompletionShell, Completions, Man};
use crate::failure::{During, Failure};
use crate::output::Output;

/// bash puts a blank behind a word that is complete, where the value of an attribute has to follow its name at once.
const BASH_NAMES: &str = r#"
_terrane_names() {
    _terrane "$@"
    if [[ ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -F _terrane_names -o bashdefault -o default terrane"#;

pub fn completions(args: &Completions) -> Result<(), Failure> {
    let shell = match args.shell {
        CompletionShell::Bash => Shell::Bash,
        CompletionShell::Zsh => Shell::Zsh,
        CompletionShell::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "terrane", &mut script);
    let script =
        String::from_utf8(script).map_err(|error| Failure::new(format!("the completions are no text: {error}")))?;
    let mut output = Output::new(false);
    output.line(script.trim_end())?;
    if shell == Shell::Bash {
        output.line(BASH_NAMES)?;
    }
    output.flush()
}

pub async fn pages(args: &Man) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new(error.to_string());
    let during = || format!("write man pages into {}", args.directory.display());
    terrane_env::fs::create_dir_all(&args.directory).await.map_err(failed).during(during())?;
    let mut root = Cli::command();
    root.build();
    let mut left = vec![("terrane".to_owned(), root)];
    let mut written = 0;
    while let Some((name, command)) = left.pop() {
        let children = command.get_subcommands().filter(|child| !child.is_hide_set() && child.get_name() != "help");
        left.extend(children.map(|child| (format!("{name}-{}", child.get_name()), child.clone())));
        let mut page = Vec::new();
        clap_mangen::Man::new(command).title(name.clone()).render(&mut page).map_err(failed).during(during())?;
        let path = args.directory.join(format!("{name}.1"));
        terrane_env::fs::write_durable(&path, &page).await.map_err(failed).during(during())?;
        written += 1;
    }
    eprintln!(
        "wrote {written} pages into {}; `man -l {}/terrane.1` shows the first",
        args.directory.display(),
        args.directory.display()
    );
    Ok(())
}
