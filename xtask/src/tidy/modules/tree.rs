//! A crate's modules, and which file a name leads to.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::source::{self, Mention, Source};

/// Longest chain of re-exports that is followed; only a chain that leads back to itself gets there.
const CHAIN_MAX: usize = 24;

/// One library or program, read from its root file.
#[derive(Debug, Default)]
pub struct Crate {
    /// Relative to the checkout.
    pub files: Vec<String>,
    /// For each file the one whose module declares it; the root has none.
    pub parents: Vec<Option<usize>>,
    /// For each pair of files the items that the first names and the second defines.
    pub arrows: BTreeMap<(usize, usize), Items>,
    modules: Vec<Module>,
}

/// Names of items, each with the line that names it first.
pub type Items = BTreeMap<String, usize>;

#[derive(Debug)]
struct Module {
    file: usize,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    items: BTreeSet<String>,
    source: Source,
}

/// Where a path leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Module(usize),
    /// An item that this module defines.
    ItemOf(usize),
}

impl Crate {
    /// Reads the root file and all that it declares. Files named relative to `checkout`.
    pub fn read(checkout: &Path, root: &Path) -> anyhow::Result<Crate> {
        let mut unit = Crate::default();
        let folder = root.parent().context("a source file lies in a folder")?;
        unit.read_file(checkout, root, folder, None)?;
        unit.draw_arrows();
        Ok(unit)
    }

    fn read_file(
        &mut self,
        checkout: &Path,
        file: &Path,
        below: &Path,
        parent: Option<usize>,
    ) -> anyhow::Result<usize> {
        let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        let name = file.strip_prefix(checkout).unwrap_or(file).to_string_lossy().into_owned();
        self.files.push(name);
        self.parents.push(parent.map(|module| self.modules[module].file));
        self.add_module(checkout, self.files.len() - 1, below, parent, source::read(&text))
    }

    /// `below` is the folder in which the files of child modules lie.
    fn add_module(
        &mut self,
        checkout: &Path,
        file: usize,
        below: &Path,
        parent: Option<usize>,
        mut source: Source,
    ) -> anyhow::Result<usize> {
        let (declared, inline) = (std::mem::take(&mut source.declared), std::mem::take(&mut source.inline));
        let items = source.items.iter().cloned().collect();
        let this = self.modules.len();
        self.modules.push(Module { file, parent, children: BTreeMap::new(), items, source });
        for (name, source) in inline {
            let child = self.add_module(checkout, file, &below.join(&name), Some(this), source)?;
            self.modules[this].children.insert(name, child);
        }
        for name in declared {
            // A declared module without a file is generated, or belongs to another platform.
            if let Some(path) = file_of_module(below, &name) {
                let child = self.read_file(checkout, &path, &below.join(&name), Some(this))?;
                self.modules[this].children.insert(name, child);
            }
        }
        Ok(this)
    }

    fn draw_arrows(&mut self) {
        let mut arrows: BTreeMap<(usize, usize), Items> = BTreeMap::new();
        for (index, module) in self.modules.iter().enumerate() {
            let mut mentioned = |mention: &Mention, to: usize, item: &str| {
                let to = self.modules[to].file;
                if to != module.file {
                    let line =
                        arrows.entry((module.file, to)).or_default().entry(item.to_owned()).or_insert(mention.line);
                    *line = mention.line.min(*line);
                }
            };
            let imports = module.source.imports.iter().map(|import| &import.target);
            for mention in imports.chain(&module.source.paths) {
                // A module alone makes no arrow: what is named in it does.
                if let Some((Place::ItemOf(to), item)) = self.resolve(index, &mention.path, CHAIN_MAX) {
                    mentioned(mention, to, item);
                }
            }
            for glob in &module.source.globs {
                if let Some((Place::Module(to) | Place::ItemOf(to), _)) = self.resolve(index, &glob.path, CHAIN_MAX) {
                    mentioned(glob, to, "*");
                }
            }
        }
        self.arrows = arrows;
    }

    /// Follows a path as seen from a module; with the segment that named the place. `None` for other crates' names.
    fn resolve<'a>(&self, from: usize, path: &'a [String], chain: usize) -> Option<(Place, &'a str)> {
        let chain = chain.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        let mut named = first.as_str();
        let mut place = match named {
            "crate" => Place::Module(0),
            "self" => Place::Module(from),
            "super" => Place::Module(self.modules[from].parent?),
            _ => self.lookup(from, first, rest.is_empty(), chain)?,
        };
        for (index, segment) in rest.iter().enumerate() {
            let Place::Module(module) = place else { break };
            named = segment;
            place = match named {
                "super" => Place::Module(self.modules[module].parent?),
                // A name that is not found here is one that a macro makes here.
                _ => self.lookup(module, segment, index + 1 == rest.len(), chain).unwrap_or(Place::ItemOf(module)),
            };
        }
        Some((place, named))
    }

    /// What a name means in a module. One name may be a module and an item: the last segment of a path is the item.
    fn lookup(&self, within: usize, name: &str, last: bool, chain: usize) -> Option<Place> {
        let module = &self.modules[within];
        let item = || module.items.contains(name).then_some(Place::ItemOf(within));
        let child = || module.children.get(name).map(|&child| Place::Module(child));
        let imported = || {
            let import = module.source.imports.iter().find(|import| import.name == name)?;
            // `use name;` of a crate, or of what a glob brings, would ask for itself.
            let itself = import.target.path.len() == 1 && import.target.path[0] == name;
            (!itself).then(|| self.resolve(within, &import.target.path, chain))?.map(|(place, _)| place)
        };
        let direct =
            if last { item().or_else(imported).or_else(child) } else { child().or_else(imported).or_else(item) };
        direct.or_else(|| {
            let chain = chain.checked_sub(1)?;
            module.source.globs.iter().find_map(|glob| match self.resolve(within, &glob.path, chain)? {
                (Place::Module(source), _) if source != within => self.lookup(source, name, last, chain),
                _ => None,
            })
        })
    }
}

fn file_of_module(folder: &Path, name: &str) -> Option<PathBuf> {
    [folder.join(format!("{name}.rs")), folder.join(name).join("mod.rs")].into_iter().find(|file| file.is_file())
}
