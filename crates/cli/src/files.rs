//! Output files of commands: checked before the work begins, written beside their place, and moved there once whole.

use clap::builder::{PathBufValueParser, TypedValueParser};
use std::fs::{File, canonicalize, metadata, remove_file, rename};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A file's name on the command line. Standard output is not allowed: reports go there.
pub(crate) fn name() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        let is_output = path == Path::new("-");
        if is_output { Err("allowed is a file: standard output is for the report") } else { Ok(path) }
    })
}

/// Whether two names mean one file.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| metadata(path).map(|found| (found.dev(), found.ino()));
    id(one).is_ok_and(|one| id(other).is_ok_and(|other| one == other))
}

/// Whether `path` is something other than a file, which a file would replace: a directory, a device, a link to nothing.
pub(crate) fn is_in_the_way(path: &Path) -> bool {
    metadata(path).map_or_else(|_| path.is_symlink(), |found| !found.is_file())
}

/// Fails if `path` cannot be written, before hours of work are spent on its content.
pub(crate) fn check(path: &Path) -> Result<(), String> {
    let blame = |error: io::Error| format!("{}: {error}", path.display());
    if is_in_the_way(path) {
        return Err(format!("{}: not a file", path.display()));
    }
    let part = beside(path);
    File::create_new(&part).and_then(|_| remove_file(&part)).map_err(blame)
}

/// Makes `bytes` the content of `path`: all of them or none. An error names the file.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), String> {
    check(path)?;
    let part = beside(path);
    let write = || {
        let mut file = File::create_new(&part)?;
        file.write_all(bytes)?;
        rename(&part, place(path))
    };
    write().inspect_err(|_| drop(remove_file(&part))).map_err(|error| format!("{}: {error}", path.display()))
}

/// The file's place, with links followed.
pub(crate) fn place(path: &Path) -> PathBuf {
    canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// A name in the same directory that only this process uses.
pub(crate) fn beside(path: &Path) -> PathBuf {
    let mut part = place(path).into_os_string();
    part.push(format!(".{}.part", std::process::id()));
    part.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_past_links_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("file"), dir.path().join("link"));
        check(&file).unwrap();
        assert!(!file.exists(), "looking makes no file");
        std::fs::write(&file, "before").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace(&link, b"after").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"after");
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn directories_devices_and_links_to_nothing_are_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("nothing", &link).unwrap();
        for path in [dir.path(), Path::new("/dev/null"), &link] {
            assert!(check(path).unwrap_err().ends_with(": not a file"));
            assert!(replace(path, b"x").is_err() && is_in_the_way(path));
        }
        assert!(check(&dir.path().join("no/such")).unwrap_err().contains("no/such: "));
    }
}
