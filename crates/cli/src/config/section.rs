//! The macro that declares one section of the configuration.
//!
//! A section is declared once and becomes two types. *Options* has every field optional and is read from the file (serde)
//! and from the command line (clap) under the same names, so the two cannot drift apart. *Config* is what the program
//! runs with: options of the command line over options of the file over the defaults, all checked.

/// A field that cannot have the value it was given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path} = {value}: allowed is {allowed}")]
pub struct FieldError {
    /// The field's dotted path, as in `node.capacity`.
    pub path: String,
    /// The value as it was written.
    pub value: String,
    /// What may be written instead.
    pub allowed: String,
}

/// What messages need to know about a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The name in its section and, after the section's flag prefix, on the command line.
    pub key: &'static str,
    /// The value it has when nobody sets it.
    pub default: &'static str,
    /// What may be written.
    pub allowed: String,
    /// What it is for, in one line.
    pub help: &'static str,
}

/// A kind of value that a field can have.
pub trait Value {
    /// What may be written, in words that continue "allowed is".
    const ALLOWED: &'static str;
    /// What stands for it in the usage of a command.
    const NAME: &'static str;
}

/// Reads a literal of a section's declaration.
pub(super) fn literal<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| unreachable!("{text:?} in a section's declaration; a test reads them all"))
}

/// Declares a section: `"name", flags "prefix" => Config, Options { "key" field: Type = "default" in "low" to "high", "help"; }`.
///
/// On the command line a field's argument has the id `name-key`, so that a command may take several sections. Bounds may be
/// left out. `checked by method`, after the names, has that method of Config check what no single field can
/// tell.
macro_rules! section {
    (
        $(#[$about:meta])*
        $section:literal, flags $prefix:literal => $config:ident, $options:ident $(, checked by $check:ident)? {
            $($key:literal $field:ident : $type:ty = $default:literal $(in $low:literal to $high:literal)?, $help:literal;)*
        }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
        pub struct $config {
            $(#[doc = $help] #[serde(rename = $key)] pub $field: $type,)*
        }

        #[doc = concat!("The section `", $section, "` as a file or the command line sets it.")]
        #[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize, clap::Args)]
        #[serde(default, deny_unknown_fields)]
        pub struct $options {
            $(
                #[doc = $help]
                #[arg(
                    id = concat!($section, "-", $key),
                    long = concat!($prefix, $key),
                    value_name = <$type as $crate::config::Value>::NAME,
                    help = concat!($help, " [default: ", $default, "]")
                )]
                #[serde(rename = $key)]
                pub $field: Option<$type>,
            )*
        }

        impl $options {
            /// Every field of the section.
            pub fn fields() -> Vec<$crate::config::Field> {
                vec![$($crate::config::Field {
                    key: $key,
                    default: $default,
                    allowed: [<$type as $crate::config::Value>::ALLOWED, $(", from ", $low, " to ", $high)?].concat(),
                    help: $help,
                }),*]
            }

            /// These options where they are set, `under` where they are not.
            pub fn over(self, under: Self) -> Self {
                Self { $($field: self.$field.or(under.$field)),* }
            }

            /// These options where they are set, defaults where they are not, all checked.
            pub fn resolve(self) -> Result<$config, $crate::config::FieldError> {
                let config = $config {
                    $($field: self.$field.unwrap_or_else(|| $crate::config::section::literal($default)),)*
                };
                $($(
                    let (low, high): ($type, $type) =
                        ($crate::config::section::literal($low), $crate::config::section::literal($high));
                    if !(low..=high).contains(&config.$field) {
                        let allowed = [<$type as $crate::config::Value>::ALLOWED, ", from ", $low, " to ", $high].concat();
                        let value = config.$field.to_string();
                        return Err($crate::config::FieldError { path: concat!($section, ".", $key).into(), value, allowed });
                    }
                )?)*
                $(config.$check()?;)?
                Ok(config)
            }
        }
    };
}

pub(crate) use section;
